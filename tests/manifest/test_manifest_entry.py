"""Ids and times in lists."""

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from touchfs.format.lhotse import Supervision
from touchfs.manifest.entry import one_line, recording_id, seconds, speaker_id, utterance_ids

NAMES = st.text(st.characters() | st.sampled_from("-=ab+ ./\u00a0\u3000\ud800"), min_size=1, max_size=6)


@given(NAMES, NAMES)
def test_ids_are_one_word_and_injective(one: str, other: str) -> None:
    for build in (recording_id, speaker_id):
        assert build(one).split() == [build(one)]
        assert build(one).isprintable() or not build(one).isascii()
        build(one).encode()
        assert (build(one) == build(other)) == (one == other)


@given(st.lists(st.tuples(NAMES, st.integers(0, 99999), NAMES), unique=True, max_size=8))
@example([("x", 0, "a"), ("y", 0, "a-b"), ("z", 0, "a+b"), ("a", 0, "a=")])
def test_utterances_that_are_sorted_by_id_are_sorted_by_speaker(segments: list[tuple[str, int, str]]) -> None:
    ids = [utterance_ids(recording_id(key), *others) for key, *others in segments]
    assert len(set(ids)) == len({name for name, _ in ids}) == len(ids)
    by_id = sorted(ids)
    assert by_id == sorted(ids, key=lambda each: each[1] + " " + each[0])
    assert by_id == sorted(ids, key=lambda each: each[0].encode())


def test_what_ids_look_like() -> None:
    assert utterance_ids("talks/monday=201", 7, None) == ("talks/monday=201-0007", "talks/monday=201-0007")
    assert utterance_ids("talks/monday-1", 12345, "Ann-Lee") == ("Ann=2DLee-talks/monday-1-12345", "Ann=2DLee")
    assert recording_id("你好\u3000=") == "你好=E3=80=80=3D"


@given(st.integers(0, 2**40), st.sampled_from([1, 7, 8000, 11025, 16000, 22050, 44100, 48000, 96000, 192000]))
def test_seconds_are_the_samples_again_however_a_tool_converts_them(samples: int, rate: int) -> None:
    time = seconds(samples, rate)
    assert int(time * rate) == round(time * rate) == math.floor(time * rate + 0.5) == samples
    assert int(float(repr(time)) * rate) == samples
    assert Supervision(None, {"start": time, "duration": 1}, (None, None)).span(rate, 2**41)[0] == samples
    assert abs(time - samples / rate) <= math.ulp(time)


@pytest.mark.parametrize(
    ("text", "line"),
    [(None, ""), (" a \n\n b\u2028c\u00a0d\x1c", "a b c d"), ("\ud800x", "\ufffdx"), ("你好", "你好"), ("\t", "")],
)
def test_texts_are_one_line(text: str | None, line: str) -> None:
    assert one_line(text) == line
