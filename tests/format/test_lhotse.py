import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from touchfs.core.errors import FormatError
from touchfs.format.lhotse import Supervision, find_value, parse_cut, parse_recording

RATE = 16000
LENGTH = 10 * RATE


def span(start: Any, duration: Any, cut: tuple[Any, Any] = (0, 10.0), rate: int = RATE, length: int = LENGTH) -> Any:
    return Supervision(None, {"start": start, "duration": duration}, cut).span(rate, length)


@pytest.mark.parametrize(
    ("seconds", "rate", "samples"),
    [
        (1, 16000, 16000),
        (0.00003125, 16000, 1),  # halves go up: 0.5
        (0.00009375, 16000, 2),  # 1.5, which is not as Python's round, and
        (0.00015625, 16000, 3),  # 2.5 neither
        (0.000031249999999999, 16000, 1),  # what should have been a half
        (0.0000312, 16000, 0),
        (0.1 + 0.2, 10, 3),
        (1.1, 44100, 48510),
        (2.675, 1000, 2675),
    ],
)
def test_times_are_rounded_to_samples(seconds: float, rate: int, samples: int) -> None:
    length = 10 * rate
    assert span(seconds, 5, rate=rate, length=length) == (samples, 5 * rate, None)
    assert span(0, seconds, rate=rate, length=length)[:2] == (0, samples)
    assert span(0, 10, (0, seconds), rate, length)[:2] == (0, samples)
    assert span(0, 1, (seconds, 5), rate, length) == (samples, rate, None)


@given(st.integers(0, 10**7), st.integers(1, 10**6), st.sampled_from([8000, 16000, 22050, 44100, 48000]))
def test_whole_samples_stay_whole(first: int, count: int, rate: int) -> None:
    cut = (0, 10**9)
    assert span(first / rate, count / rate, cut, rate, 2 * 10**7) == (first, count, None)


@pytest.mark.parametrize(
    ("start", "duration", "expected", "words"),
    [
        (-1, 2, (16000, 16000), "before the cut: cut at 0 s"),
        (3.5, 2, (16000 + 56000, 8000), "past the cut's end: cut at 4.0 s"),
        (-1, 20, (16000, 64000), "before the cut.*; ends past"),
        (4.0, 1, (16000 + 64000, 0), "starts at 4.0 s, past the cut's end at 4.0 s"),
        (99, 1, (16000 + 64000, 0), "past the cut's end"),
        (-3, 1, (16000, 0), "ends before the cut begins"),
        (1, 0, (32000, 0), "less than a sample"),
        (1, 0.00001, (32000, 0), "less than a sample"),
        (1, -1, (32000, 0), "less than a sample"),
        (None, 1, (16000, 0), "not both a time"),
        (1, "2", (16000, 0), "not both a time"),
        (float("nan"), 1, (16000, 0), "not both a time"),
        (1, float("inf"), (16000, 0), "not both a time"),
        (True, 1, (16000, 0), "not both a time"),
        ([[]], {}, (16000, 0), "not both a time"),
    ],
)
def test_a_segment_stays_in_its_cut(start: Any, duration: Any, expected: tuple[int, int], words: str) -> None:
    """A cut from 1 s to 5 s of a recording of 10 s."""
    *found, problem = span(start, duration, (1, 4.0))
    assert tuple(found) == expected
    assert problem is not None
    assert re.search(words, problem), problem


@pytest.mark.parametrize("cut", [(None, None), ("0", 1), (0, float("nan")), (float("inf"), 1)])
def test_a_cut_that_does_not_tell_its_times_is_all_of_its_recording(cut: tuple[Any, Any]) -> None:
    assert span(1, 99, cut)[:2] == (RATE, LENGTH - RATE)


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
TIMES = st.floats() | st.integers(-(10**30), 10**30) | st.integers(-99, 99) | ANY_JSON


@given(TIMES, TIMES, TIMES, TIMES, st.integers(1, 2**31 - 1), st.integers(0, 2**40))
def test_no_times_lead_out_of_the_recording(
    start: Any, duration: Any, cut_start: Any, cut_duration: Any, rate: int, length: int
) -> None:
    first, count, problem = span(start, duration, (cut_start, cut_duration), rate, length)
    assert 0 <= first <= first + count <= length
    assert problem or count


@given(st.dictionaries(st.sampled_from(["id", "start", "duration", "supervisions"]), ANY_JSON))
def test_any_object_can_be_taken_for_a_cut(fields: dict[str, Any]) -> None:
    cut = parse_cut(fields)
    assert cut.key != ""
    assert parse_cut(fields | {"supervisions": [3, [], {"start": {}, "text": 3}]}).text is None


def test_a_cut() -> None:
    supervisions = [
        {"id": "b", "start": 2.0, "duration": 1, "text": "two"},
        {"id": "n", "start": None, "duration": 1, "text": "never"},
        {"id": "e", "start": 0.5, "duration": 1},
        {"id": "a", "start": 1, "duration": 1, "text": "one"},
        {"id": "c", "start": 2.0, "duration": 1, "text": "three"},
    ]
    cut = parse_cut({"id": "x", "start": 0, "duration": 9, "supervisions": supervisions, "type": "MonoCut"})
    assert cut.key == "x"
    assert cut.text == "one two three never", "in the order of time, and of the list where that is the same"
    assert [each.fields for each in cut.supervisions] == supervisions, "in the order of the list"
    assert [each.text for each in cut.supervisions] == ["two", "never", None, "one", "three"]
    assert parse_cut({"id": 7}) == ("7", None, ())
    assert parse_cut({"id": ""}).key is None


def test_what_is_told_of_a_recording() -> None:
    told = {"id": "r", "sampling_rate": 44100, "num_samples": 7, "duration": 7 / 44100, "channel_ids": [0, 3]}
    assert parse_recording(told) == (44100, 2, 7)
    for name in ("sampling_rate", "num_samples", "channel_ids"):
        for wrong in (None, -1, 1.5, "1", [], 2**63, True):
            assert parse_recording(told | {name: wrong}) is None, (name, wrong)


# Where a value is in its line


@given(
    st.dictionaries(st.text(max_size=4), ANY_JSON, max_size=4),
    st.booleans(),
    st.sampled_from([None, 1]),
    st.sampled_from([b"", b" \t", b"\xef\xbb\xbf"]),
)
def test_values_are_found_where_they_are_written(
    fields: dict[str, Any], ascii_only: bool, indent: int | None, before: bytes
) -> None:
    try:
        line = before + json.dumps(fields, ensure_ascii=ascii_only, indent=indent).encode() + b" \r\n"
    except UnicodeEncodeError:  # half a surrogate pair
        line = before + json.dumps(fields).encode()
    for name, value in fields.items():
        found = find_value(line, name)
        assert found is not None
        told, offset, length = found
        assert repr(told) == repr(value)
        assert repr(json.loads(line[offset : offset + length])) == repr(value)
        assert line[offset : offset + length].strip() == line[offset : offset + length]
    assert find_value(line, "no such field") is None


def test_the_last_of_several_counts() -> None:
    line = b'{"a":1,"a" : [2, "}"]\t,"b":{"a":3}}'
    assert find_value(line, "a") == ([2, "}"], 13, 8)
    assert json.loads(line)["a"] == [2, "}"]


@given(st.binary() | st.text(alphabet='{}[]",:\\ 01ae').map(str.encode))
def test_any_bytes_are_an_object_or_an_error(line: bytes) -> None:
    try:
        find_value(line, "a")
    except FormatError:
        assert not _is_object(line)


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line.decode()), dict)
    except ValueError:
        return False


def test_a_nest_is_an_error_too() -> None:
    with pytest.raises(FormatError):
        find_value(b'{"a":' + b"[" * 10**5, "a")
