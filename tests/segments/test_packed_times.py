"""Packed times mean the same samples as the times that were packed, at any rate and length."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from touchfs.core.errors import FormatError
from touchfs.format.lhotse import Supervision
from touchfs.format.metainfo import TouchNetSegment
from touchfs.segments.packed_times import PackedTimes, join_times, pack_times, seconds_of
from touchfs.segments.segment import Spanned
from touchfs.segments.times import Times

SECONDS = st.floats(-1, 50) | st.integers(-1, 50) | st.sampled_from([0.1, 1.00005, 2.675, -1, 1e30, 10**30, 10**400])
OTHERS = st.none() | st.text(max_size=3) | st.lists(st.none(), max_size=1) | st.floats() | st.booleans()
ANYTHING: Any = SECONDS | OTHERS
TIMES = st.one_of(
    st.builds(Times, ANYTHING, ANYTHING, ANYTHING),
    st.builds(Times, st.integers(-9, 10**6), st.none() | st.integers(-9, 10**6), in_samples=st.just(True)),
    st.builds(lambda start, end: TouchNetSegment(start, end, None, {}), ANYTHING, ANYTHING),
    st.builds(
        lambda start, duration, cut: Supervision(None, {"start": start, "duration": duration}, cut),
        ANYTHING,
        ANYTHING,
        st.tuples(SECONDS, SECONDS) | st.tuples(ANYTHING, ANYTHING),
    ),
)


@given(TIMES, st.integers(1, 200_000), st.integers(0, 10**7))
def test_packed_times_are_the_same_samples(times: Spanned, rate: int, length: int) -> None:
    first, count, _ = times.span(rate, length)
    packed = PackedTimes.parse(pack_times(times)).span(rate, length)
    assert packed[1] == count
    assert packed[0] == first or not count


@given(st.lists(st.tuples(st.floats(0, 50), st.floats(0, 9)), min_size=1, max_size=4), st.integers(1, 200_000))
def test_joined_times_are_from_the_first_start_to_the_last_end(pairs: list[tuple[float, float]], rate: int) -> None:
    pairs.sort()
    segments = [Supervision(None, {"start": start, "duration": duration}, (0, 60)) for start, duration in pairs]
    first, count, _ = PackedTimes.parse(join_times(map(pack_times, segments))).span(rate, 60 * rate)
    spans = [each.span(rate, 60 * rate) for each in segments]
    assert (first, first + count) == (spans[0][0], max(start + length for start, length, _ in spans))


def test_seconds_are_those_of_the_segment_where_it_can_be() -> None:
    assert seconds_of(Times(1.5, 2.25)) == ({"start": 1.5, "end": 2.25}, None)
    assert seconds_of(Times(1.5)) == ({"start": 1.5, "end": None}, None)
    assert seconds_of(TouchNetSegment(1, -1, None, {})) == ({"start": 1.0, "end": None}, None)
    assert seconds_of(Times(400, None, 20, in_samples=True)) == ({"offset": 400, "length": 20}, None)
    facts, problem = seconds_of(Times("x", 2))
    assert facts == {"start": 0.0, "end": 0.0}
    assert problem == "'x' with 2 is not a time"


def test_times_without_a_rule_are_a_mistake_of_the_program() -> None:
    with pytest.raises(TypeError):
        pack_times(object())  # type: ignore[arg-type]


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b"[" * 10_000, b'[["times",1e999,1,1]]', b'[["cut",1,2]]', b"[1]"])
def test_damaged_bytes(data: bytes) -> None:
    with pytest.raises(FormatError, match="index with --force"):
        PackedTimes.parse(data)
