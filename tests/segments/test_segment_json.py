import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from touchfs.core.errors import FormatError, UsageError
from touchfs.format.metainfo import TouchNetSegment
from touchfs.segments.json_rules import JSON_RULES, segments_of_json
from touchfs.segments.segment import SEGMENTS_MAX, Segment

RATE, LENGTH = 1000, 10_000
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)
NAMES = ["start", "end", "duration", "offset", "timestamp", "text", "txt", "transcript", "words", "start_sample", "x"]
ENTRIES = st.lists(st.dictionaries(st.sampled_from(NAMES), JSON, max_size=5) | JSON, max_size=6)


def found(value: Any, rule: str | None = None) -> list[tuple[int, int, str | None]]:
    segments = segments_of_json(value, rule)
    assert segments is not None
    return [(*each.span(RATE, LENGTH)[:2], each.text) for each in segments.segments]


@pytest.mark.parametrize(
    ("sample", "rule", "expected"),
    [
        ({"info": {"segments": [{"start": 0.5, "end": 1.25, "txt": "a"}]}}, "info.segments", [(500, 750, "a")]),
        (
            {"text": "a b", "segments": [{"id": 0, "start": 0.0, "end": 2.5, "text": " a", "tokens": [1]}]},
            "segments",
            [(0, 2500, " a")],
        ),
        ({"segments": [{"sid": "S1", "begin_time": 1.5, "end_time": 2, "text": "a"}]}, "segments", [(1500, 500, "a")]),
        ({"segments": [{"start": 1.5, "end": 2, "speaker": "S"}]}, "segments", [(1500, 500, None)]),
        ({"segments": [{"offset": 1.5, "duration": 2, "transcript": "a"}]}, "segments", [(1500, 2000, "a")]),
        ({"segments": [{"start_sample": 7, "end_sample": 9, "start": 0, "end": 9}]}, "segments", [(7, 2, None)]),
        ({"segments": [{"offset_samples": 7, "num_samples": 2}]}, "segments", [(7, 2, None)]),
        ({"segments": [{"start_sample": 7.0, "start": 1, "end": 2}]}, "segments", [(1000, 1000, None)]),
        (
            {"start": 1, "duration": 5, "supervisions": [{"start": 0.5, "duration": 1, "text": "a"}]},
            "supervisions",
            [(1500, 1000, "a")],
        ),
        (
            {"alignment": {"word": [["a", 0.5, 0.25, 0.9], ["b", 0.75, 1]]}},
            "alignment",
            [(500, 250, "a"), (750, 1000, "b")],
        ),
        ({"alignment": [{"start": 1, "end": 2, "word": "a"}]}, "alignment", [(1000, 1000, "a")]),
        (  # dumps of faster-whisper
            [{"id": 1, "seek": 0, "start": 0.0, "end": 2.5, "text": " a", "words": None}],
            "segments",
            [(0, 2500, " a")],
        ),
        (  # whisperX
            {"segments": [{"start": 1, "end": 2, "text": " a b", "words": []}], "word_segments": [{"word": "a"}]},
            "segments",
            [(1000, 1000, " a b")],
        ),
        (  # whisper.cpp
            {
                "result": {"language": "en"},
                "transcription": [
                    {
                        "timestamps": {"from": "00:00:00,000", "to": "00:00:01,500"},
                        "offsets": {"from": 0, "to": 1500},
                        "text": " a",
                    },
                    {"offsets": {"from": 1500, "to": None}, "text": " b"},
                    {"offsets": {"from": "x", "to": True}, "text": " c"},
                ],
            },
            "transcription",
            [(0, 1500, " a"), (1500, 8500, " b"), (0, 0, " c")],
        ),
        (  # NeMo's hypotheses
            {
                "text": "a b",
                "timestamp": {
                    "word": [{"word": "a", "start_offset": 0, "end_offset": 3, "start": 0.0, "end": 0.24}],
                    "segment": [{"segment": "a b", "start_offset": 0, "end_offset": 9, "start": 0.0, "end": 0.72}],
                },
            },
            "timestamp",
            [(0, 720, "a b")],
        ),
        ({"timestamp": {"word": [{"word": "a", "start": 0.0, "end": 0.24}]}}, "timestamp", [(0, 240, "a")]),
        (  # Deepgram
            {
                "metadata": {"duration": 9.5},
                "results": {
                    "channels": [
                        {"alternatives": [{"transcript": "a", "words": [{"word": "a", "start": 1, "end": 2}]}]}
                    ],
                    "utterances": [{"start": 1.5, "end": 2, "transcript": "a", "channel": 0, "speaker": 1}],
                },
            },
            "results",
            [(1500, 500, "a")],
        ),
        (
            {"results": {"channels": [{"alternatives": [{"words": [{"word": "a", "start": 1, "end": 2}]}]}]}},
            "results",
            [(1000, 1000, "a")],
        ),
        (  # AWS Transcribe
            {
                "jobName": "x",
                "results": {
                    "items": [{"start_time": "0.5", "end_time": "0.75", "alternatives": [{"content": "a"}]}],
                    "audio_segments": [
                        {"id": 0, "transcript": "a", "start_time": "0.5", "end_time": "2.0", "speaker_label": "spk_0"}
                    ],
                },
            },
            "results",
            [(500, 1500, "a")],
        ),
        (  # AssemblyAI
            {
                "audio_url": "https://x/a.wav",
                "words": [{"text": "a", "start": 250, "end": 500}],
                "utterances": [{"text": "a b", "start": 250, "end": 1500, "speaker": "A"}],
            },
            "utterances",
            [(250, 1250, "a b")],
        ),
        (
            {"audio_url": "x", "words": [{"text": "a", "start": 250, "end": 500}], "utterances": None},
            "utterances",
            [(250, 250, "a")],
        ),
        ({"words": [{"word": "a", "start": 1, "end": 2}, {"word": "7"}]}, "words", [(1000, 1000, "a"), (0, 0, "7")]),
        (
            {"chunks": [{"timestamp": [0.0, 1.5], "text": "a"}, {"timestamp": [1.5, None], "text": "b"}]},
            "chunks",
            [(0, 1500, "a"), (1500, 8500, "b")],
        ),
    ],
)
def test_what_tools_write(sample: dict[str, Any], rule: str, expected: list[Any]) -> None:
    assert found(sample) == expected
    segments = segments_of_json(sample)
    assert segments is not None
    assert segments.rule == rule


def where_it_looks(rule: str, entries: list[Any]) -> dict[str, Any]:
    """A sample in which a rule finds these entries."""
    places: dict[str, dict[str, Any]] = {
        "info.segments": {"info": {"segments": entries}},
        "utterances": {"audio_url": "x", "utterances": entries},
        "timestamp": {"timestamp": {"segment": entries}},
        "results": {"results": {"utterances": entries}},
    }
    return places.get(rule, {rule: entries})


def test_the_first_rule_that_finds_segments_wins_and_a_name_selects_another() -> None:
    entry = {"start": 1, "end": 2}
    sample: dict[str, Any] = {"info": {"segments": []}, "segments": ["no object"], "words": [{"word": "no time"}]}
    assert segments_of_json(sample) is None
    sample |= {"chunks": [{"timestamp": [0, 1]}]}
    assert found(sample) == [(0, 1000, None)]
    sample |= {"words": [entry, 7, entry]}
    assert found(sample) == [(1000, 1000, None)] * 2
    assert found(sample, "chunks") == [(0, 1000, None)]
    assert segments_of_json(sample, "segments") is None
    sample = {}
    for name in reversed(JSON_RULES):
        sample |= where_it_looks(name, [{**entry, "offsets": {"from": 1000, "to": 2000}}])
        segments = segments_of_json(sample)
        assert segments is not None
        assert segments.rule == name
    with pytest.raises(UsageError, match=r"'turns'.*there are info\.segments, segments"):
        segments_of_json(sample, "turns")


@pytest.mark.parametrize("sample", [None, [], "x", 7, {}, {"segments": {}}, {"info": 3}, {"alignment": {"phone": []}}])
def test_json_without_segments(sample: Any) -> None:
    assert segments_of_json(sample) is None


def test_labels_and_versions_of_the_text() -> None:
    entry = {
        "start": 0,
        "end": 1,
        "transcript": "default",
        "whisper": "other",
        "spk": "ann",
        "lang": "en",
        "channel": 1,
        "utt_id": "u1",
        "texts": {"de": "gut", "whisper": "not this one", "": "x"},
    }
    segments = segments_of_json({"segments": [entry]})
    assert segments is not None
    (segment,) = segments.segments
    assert segment.texts == {"": "default", "whisper": "other", "de": "gut"}
    assert (segment.speaker, segment.language, segment.channel, segment.recording) == ("ann", "en", "1", None)
    assert segment.fields is entry


@pytest.mark.parametrize("name", ["transcription", "sentence", "normalized_text", "raw_text", "text_tn"])
def test_transcripts_of_known_corpora_are_the_text_where_nothing_better_is(name: str) -> None:
    for fields, texts in (({}, {"": "this"}), ({"text": "better"}, {"": "better", name: "this"})):
        segments = segments_of_json({"segments": [{"start": 0, "end": 1, name: "this", **fields}]})
        assert segments is not None
        assert segments.segments[0].texts == texts


@given(ENTRIES, st.sampled_from([8000, 16000, 44100]), st.integers(0, 10**6))
def test_touchnets_segments_are_as_before(entries: list[Any], rate: int, length: int) -> None:
    sample = json.loads(json.dumps({"info": {"segments": entries}}))
    before = [TouchNetSegment.of(each) for each in sample["info"]["segments"] if isinstance(each, dict)]
    segments = segments_of_json(sample)
    after = segments.segments if segments else ()
    assert len(before) == len(after)
    for old, new in zip(before, after, strict=True):
        assert old.span(rate, length) == new.span(rate, length)
        assert repr((old.fields, old.text)) == repr((new.fields, new.text))


@given(
    st.dictionaries(
        st.sampled_from(["info", "segments", "supervisions", "alignment", "words", "chunks"]), ENTRIES | JSON
    )
)
def test_any_json(sample: dict[str, Any]) -> None:
    segments = segments_of_json(sample)
    if segments is None:
        return
    for segment in segments.segments:
        for rate, length in ((16000, 32000), (1, 3), (2**31 - 1, 5), (44100, 0)):
            first, count, problem = segment.span(rate, length)
            assert 0 <= first <= first + count <= length
            assert count or problem, "a segment with nothing in it says why"
            assert problem is None or ("\n" not in problem and len(problem) < 400)
        assert all(isinstance(text, str) for text in segment.texts.values())
        assert isinstance(segment.speaker, str | None)


@given(st.integers(0, 10**7), st.integers(1, 10**6), st.sampled_from([8000, 16000, 22050, 44100, 48000]))
def test_times_of_whole_samples_are_these_samples(first: int, count: int, rate: int) -> None:
    start, end, duration = first / rate, (first + count) / rate, count / rate
    for entry in (
        {"start": start, "end": end},
        {"offset": start, "duration": duration},
        {"timestamp": [start, end]},
        {"start_sample": first, "end_sample": first + count},
    ):
        segments = segments_of_json({"segments": [entry]})
        assert segments is not None
        assert segments.segments[0].span(rate, 2 * 10**7) == (first, count, None)


@pytest.mark.parametrize(
    ("entry", "span", "words"),
    [
        ({"start": 1.0005, "end": 2}, (1001, 999), None),
        ({"start": "1", "end": "2.5"}, (1000, 1500), None),
        ({"start": 1, "end": -1}, (1000, 9000), None),
        ({"start": 1}, (1000, 9000), None),
        ({"start": 10, "end": 11}, (10000, 0), "starts at 10.0 s, past the recording's end at 10.0 s"),
        ({"start": 2, "end": 1}, (2000, 0), "ends at 1.0 s, not after its start at 2.0 s"),
        ({"start": 2, "duration": 0.0001}, (2000, 0), "not after its start"),
        ({"start": 9, "end": 12}, (9000, 1000), "ends at 12.0 s, past the recording's end: cut at 10.0 s"),
        ({"start": -1, "end": 12}, (0, 10000), "before the recording: cut at 0 s; ends at 12.0 s"),
        ({"start": -3, "end": -2}, (0, 0), "before the recording begins"),
        ({"start": "x", "end": None}, (0, 0), "'x' with null is not a time"),
        ({"start": math.nan, "end": 1}, (0, 0), "NaN with 1 is not a time"),
        ({"start": 0, "duration": math.inf}, (0, 0), "0 with Infinity is not a time"),
        ({"start": 0, "end": 10**400}, (0, 0), "is not a time"),
        ({"start_sample": 0, "end_sample": 10**400}, (0, 0), "is not a time"),
        ({"start": 0, "end": "9" * 100_000}, (0, 0), "is not a time"),
        ({"start": [0], "end": {}}, (0, 0), "[0] with {} is not a time"),
        ({"start": 0, "end": "\n" * 1000}, (0, 0), "…"),
    ],
)
def test_hostile_times(entry: dict[str, Any], span: tuple[int, int], words: str | None) -> None:
    segments = segments_of_json({"segments": [entry]})
    assert segments is not None
    *place, problem = segments.segments[0].span(RATE, LENGTH)
    assert tuple(place) == span
    assert problem is words is None or (words is not None and problem is not None and words in problem)


@pytest.mark.parametrize("name", JSON_RULES)
def test_too_many_segments(name: str) -> None:
    entries = [{"start": 0, "end": 1}] * (SEGMENTS_MAX + 1)
    with pytest.raises(FormatError, match=rf"{name}\S* has 262,145 entries, more than 262,144"):
        segments_of_json(where_it_looks(name, entries))


def test_deep_nesting() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    segments = segments_of_json({"segments": [{"start": deep, "end": 1, "text": deep}]})
    assert segments is not None
    assert segments.segments[0].span(RATE, LENGTH) == (0, 0, "list with 1 is not a time")


def test_a_record_is_what_the_view_of_segments_takes() -> None:
    assert isinstance(Segment.of({"start": 0, "end": 1}).text, str | None)
    assert TouchNetSegment.of({"start": 0, "end": 1}).span(8, 9) == Segment.of({"start": 0, "end": 1}).span(8, 9)
