import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from touchfs.core.errors import FormatError
from touchfs.format.metainfo import Metainfo, TouchNetSegment, parse_metainfo, parse_object

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)
TIMES = (
    st.floats(0, 10) | st.integers(0, 10) | st.floats(0, 10).map(str) | st.integers(0, 9999).map(lambda ms: ms / 1000)
)


def parsed(**fields: Any) -> Metainfo:
    return parse_metainfo(json.dumps(fields).encode())


def segments_of(metainfo: Metainfo) -> list[TouchNetSegment]:
    """The objects in `info.segments`, each as a segment."""
    info = metainfo.fields.get("info")
    stored = info.get("segments") if isinstance(info, dict) else None
    return [TouchNetSegment.of(each) for each in stored or () if isinstance(each, dict)]


def segment(start: Any, end: Any) -> TouchNetSegment:
    return TouchNetSegment(start, end, None, {})


def test_what_touchnet_writes() -> None:
    stored = (
        '{"key": "utt-é", "wav": "/a/b.wav", "txt": "你好", "sample_rate": 16000, '
        '"info": {"segments": [{"start": 0.5, "end": 1.25, "txt": "你"}, {"start": 2, "end": "3"}]}}'
    )
    metainfo = parse_metainfo(stored.encode())
    assert (metainfo.key, metainfo.text, metainfo.rate) == ("utt-é", "你好", 16000)
    assert metainfo.fields == json.loads(stored)
    first, second = segments_of(metainfo)
    assert (first.start, first.end, first.text) == (0.5, 1.25, "你")
    assert first.fields == {"start": 0.5, "end": 1.25, "txt": "你"}
    assert second.text is None
    assert first.span(16000, 99999) == (8000, 12000, None)
    assert second.span(16000, 99999) == (32000, 16000, None)


@pytest.mark.parametrize(
    ("stored", "key"),
    [
        ("7", "7"),
        ("-1", "-1"),
        ('"a/b"', "a/b"),
        ('""', None),
        ("null", None),
        ("true", None),
        ("1.5", None),
        ("[]", None),
        ("NaN", None),
        ('"\\ud800"', "\ud800"),
        ("1" * 4000, "1" * 4000),
    ],
)
def test_keys(stored: str, key: str | None) -> None:
    assert parse_metainfo(b'{"key": ' + stored.encode() + b"}").key == key


@pytest.mark.parametrize("rate", [0, -1, 2**31, 10**400, 16000.5, "16000", None, True, [16000], math.nan, math.inf])
def test_rates_that_are_none(rate: Any) -> None:
    assert parsed(sample_rate=rate).rate is None


def test_fields_of_another_type_are_absent() -> None:
    assert parsed() == Metainfo(None, None, None, {})
    assert parsed(key=None, txt=1, info=[]) == Metainfo(None, None, None, {"key": None, "txt": 1, "info": []})
    assert parsed(txt=3, text="three").text == "three"


@pytest.mark.parametrize(
    ("stored", "words", "offset"),
    [
        (b"", "not JSON", 0),
        (b"{", "not JSON", 1),
        (b'{"key": "a"} {"key": "b"}', "not JSON", 13),
        (b'{"key": "\x80"}', "not UTF-8", 9),
        (b'\xef\xbb\xbf{"key": "a"}', "not JSON", 0),
        (b"[1]", "not a JSON object", 0),
        (b'"x"', "not a JSON object", 0),
        (b"null", "not a JSON object", 0),
        (b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested too deep", 0),
        (b'{"key": ' + b"1" * 5000 + b"}", "a number too long", 0),
    ],
)
def test_refusals(stored: bytes, words: str, offset: int) -> None:
    for parse in (parse_metainfo, parse_object):
        with pytest.raises(FormatError, match=words) as caught:
            parse(stored)
        assert caught.value.offset == offset


@given(st.binary(max_size=40) | st.text(max_size=40).map(str.encode))
@example(b"\xff\xfe{\0}\0")
def test_any_bytes(data: bytes) -> None:
    try:
        assert isinstance(parse_metainfo(data), Metainfo)
    except FormatError as error:
        assert error.offset is not None
        assert 0 <= error.offset <= len(data)


@given(st.dictionaries(st.sampled_from(["key", "txt", "text", "sample_rate", "info"]), JSON))
def test_any_object(fields: dict[str, Any]) -> None:
    metainfo = parsed(**fields)
    assert metainfo.key is None or metainfo.key == str(fields["key"])
    assert metainfo.rate is None or metainfo.rate == fields["sample_rate"]


@given(st.lists(st.fixed_dictionaries({}, optional={"start": JSON | TIMES, "end": JSON | TIMES, "txt": JSON})))
def test_no_segment_leaves_its_recording(segments: list[dict[str, Any]]) -> None:
    for each in segments_of(parsed(info={"segments": segments})):
        for rate, length in ((16000, 32000), (1, 3), (2**31 - 1, 5), (44100, 0)):
            first, count, problem = each.span(rate, length)
            assert 0 <= first <= first + count <= length
            assert count or problem, "a segment with nothing in it says why"
            assert problem is None or ("\n" not in problem and len(problem) < 400)


@given(TIMES, TIMES, st.sampled_from([1, 7, 8000, 16000, 44100, 48000]))
@example(1.001, 1.002, 16000)
def test_a_segment_is_a_slice_of_its_recording(start: Any, end: Any, rate: int) -> None:
    pcm = np.arange(int(3.3 * rate))
    first, count, problem = segment(start, end).span(rate, len(pcm))
    asked = int(float(start) * rate), int(float(end) * rate)
    assert np.array_equal(pcm[first : first + count], pcm[slice(*asked)])
    assert (problem is None) == (0 <= asked[0] < asked[1] <= len(pcm))


@pytest.mark.parametrize(
    ("start", "end", "span", "words"),
    [
        (0, -1, (0, 1000), None),
        (0.25, -1, (250, 750), None),
        ("0.25", "-1", (250, 750), None),
        (" 1e-1 ", "0.2", (100, 100), None),
        (1, -1, (1000, 0), "starts at 1.0 s, past the recording's end at 1.0 s"),
        (2, 3, (1000, 0), "starts at 2.0 s, past"),
        (0.5, 0.5, (500, 0), "ends at 0.5 s, not after its start"),
        (0.5, 0.4, (500, 0), "ends at 0.4 s, not after its start"),
        (0.5, 0.5004, (500, 0), "shorter than one sample"),
        (0.5, 1.5, (500, 500), "ends at 1.5 s, past the recording's end: cut at 1.0 s"),
        (-0.5, 0.5, (0, 500), "starts at -0.5 s, before the recording: cut at 0 s"),
        (-0.5, 7, (0, 1000), "before the recording: cut at 0 s; ends at 7.0 s, past"),
        (-3, -2, (0, 0), "ends at -2.0 s, before the recording begins"),
        (-3, -5, (0, 0), "not after its start"),
        (-3, -1, (0, 1000), "before the recording"),
        (None, 1, (0, 0), "null to 1 is not a time"),
        (True, None, (0, 0), "true to null is not a time"),
        ([None, "é\n"], 1, (0, 0), '[null, "\\u00e9\\n"] to 1 is not a time'),
        ("one", 1, (0, 0), "'one' to 1 is not a time"),
        ([0], {}, (0, 0), "is not a time"),
        (math.nan, 1, (0, 0), "NaN to 1 is not a time"),
        (b"one", 1, (0, 0), "bytes to 1 is not a time"),
        (0, math.inf, (0, 0), "is not a time"),
        (-math.inf, 1, (0, 0), "is not a time"),
        ("infinity", 1, (0, 0), "is not a time"),
        (0, 1e308, (0, 0), "is not a time"),
        (0, 10**400, (0, 0), "is not a time"),
        (0, "9" * 100_000, (0, 0), "is not a time"),
    ],
)
def test_spans(start: Any, end: Any, span: tuple[int, int], words: str | None) -> None:
    first, count, problem = segment(start, end).span(1000, 1000)
    assert (first, count) == span
    assert problem is words is None or (words is not None and problem is not None and words in problem)
