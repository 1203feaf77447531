"""Lines in JSON that point to audio, and those that are built."""

import csv
import json
from io import StringIO
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from touchfs.core.errors import FormatError
from touchfs.manifest.entry import ListedRecording, Utterance, one_line
from touchfs.manifest.hugging_face import METADATA_HEADER, build_metadata_row
from touchfs.manifest.json_lines import parse_reference
from touchfs.manifest.lhotse import build_cut, build_recording, build_supervision
from touchfs.manifest.nemo import build_nemo
from touchfs.manifest.reference import Reference
from touchfs.manifest.wenet import build_wenet
from touchfs.segments.json_rules import segments_of_json

RATE, LENGTH = 16000, 152000
MONDAY = ListedRecording("monday", "talks/monday.wav", RATE, 1, LENGTH)
UTTERANCE = Utterance("Ann-monday-0000", MONDAY, 24000, 16016, "Ann", "Good\n“morning”.", "Ann", "en")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
FIELDS = [
    "audio_filepath",
    "wav",
    "sources",
    "recording",
    "recording_id",
    "offset",
    "start",
    "end",
    "duration",
    "text",
    "id",
]


def parsed(line: str) -> Reference:
    assert line.endswith("\n")
    assert "\n" not in line[:-1]
    reference = parse_reference(json.loads(line))
    assert reference is not None
    return reference


@pytest.mark.parametrize("build", [build_nemo, build_wenet, build_supervision])
def test_utterances_are_parsed_as_they_are_built(build: Any) -> None:
    path, recording, segment = parsed(build(UTTERANCE))
    assert (path, recording) == ((None, "monday") if build is build_supervision else ("talks/monday.wav", None))
    assert segment.span(RATE, LENGTH) == (24000, 16016, None)
    assert segment.text == "Good “morning”."
    if build is not build_wenet:
        assert segment.speaker == "Ann"
        assert segment.language == "en"


@pytest.mark.parametrize("channels", [1, 2])
def test_recordings_and_cuts(channels: int) -> None:
    recording = MONDAY._replace(channels=channels)
    for line in (build_recording(recording), build_cut(recording, [UTTERANCE._replace(recording=recording)] * 2)):
        path, name, segment = parsed(line)
        assert (path, name) == ("talks/monday.wav", "monday")
        assert segment.span(RATE, LENGTH) == (0, LENGTH, None)
    assert segment.text == "Good “morning”. Good “morning”."
    segments = segments_of_json(json.loads(line))
    assert segments is not None
    assert segments.rule == "supervisions"
    assert [each.span(RATE, LENGTH) for each in segments.segments] == [(24000, 16016, None)] * 2


@pytest.mark.parametrize(
    ("line", "path", "span"),
    [
        ({"audio_filepath": "a.wav", "duration": 2.5, "text": "x"}, "a.wav", (0, 40000)),
        ({"audio_filepath": "/a.wav", "offset": 1}, "/a.wav", (16000, LENGTH - 16000)),
        ({"audio_filepath": "s3://b/a.wav", "offset": None, "duration": None}, "s3://b/a.wav", (0, LENGTH)),
        ({"key": "a", "wav": "a.wav", "txt": "x"}, "a.wav", (0, LENGTH)),
        (
            {
                "start": 1,
                "duration": 2,
                "recording": {"id": "r", "sources": [{"type": "url", "source": "https://a/b"}]},
            },
            "https://a/b",
            (16000, 32000),
        ),
        ({"audio_filepath": "a.wav", "offset": "x", "duration": 1}, "a.wav", (0, 0)),
        ({"audio_filepath": "a.wav", "offset": 9, "duration": 1}, "a.wav", (144000, 8000)),
    ],
)
def test_what_tools_write(line: dict[str, Any], path: str, span: tuple[int, int]) -> None:
    reference = parse_reference(line)
    assert reference is not None
    assert reference.path == path
    assert reference.segment.span(RATE, LENGTH)[:2] == span


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ({"audio_filepath": "cat a.wav |"}, "is a command, and commands are never run"),
        ({"audio_filepath": "pipe:cat a.wav"}, "is a command"),
        ({"audio_filepath": ["a.wav"]}, "list is not a path"),
        ({"audio_filepath": ""}, "is not a path"),
        ({"audio_filepath": "x" * 5000}, "'x+'… is not a path"),
        ({"wav": "a\0b"}, "is not a path"),
        ({"sources": [{"type": "command", "source": "cat a.wav"}]}, "is a command, and commands are never run"),
        ({"sources": [{"type": "memory", "source": "AAAA"}]}, "is of the type 'memory', not a file"),
        ({"sources": [{"type": "file", "source": "a"}, {"type": "file", "source": "b"}]}, "has no single source"),
        ({"sources": "a"}, "has no single source"),
        ({"recording": "a", "type": "MonoCut"}, "a cut of the type 'MonoCut' points to no recording"),
    ],
)
def test_refusals(line: dict[str, Any], words: str) -> None:
    with pytest.raises(FormatError, match=words) as caught:
        parse_reference(line)
    assert len(str(caught.value)) < 300


def test_lines_that_point_to_nothing() -> None:
    assert parse_reference({"text": "x", "start": 0}) is None


@given(st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=6))
def test_any_line(line: dict[str, Any]) -> None:
    try:
        reference = parse_reference(line)
    except FormatError as error:
        assert "\n" not in str(error)
        return
    if reference is not None:
        first, count, problem = reference.segment.span(RATE, LENGTH)
        assert 0 <= first <= first + count <= LENGTH
        assert count or problem


CELLS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=9)


@given(CELLS, CELLS)
def test_rows_of_a_csv(path: str, text: str) -> None:
    rows = METADATA_HEADER + build_metadata_row(path, UTTERANCE._replace(text=text, language=None))
    found = csv.DictReader(StringIO(rows, newline=""))
    row = list(found)
    assert found.fieldnames == ["file_name", "transcription", "speaker", "language", "duration"]
    assert row == [
        {"file_name": path, "transcription": one_line(text), "speaker": "Ann", "language": "", "duration": "1.001"}
    ]
