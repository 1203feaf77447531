"""The names of spans: one canonical spelling each, and a reason for what is none."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from touchfs.core.errors import UsageError
from touchfs.segments.times import Times
from touchfs.view.slice_span import SAMPLES_MAX, SliceSpan, parse_span


@pytest.mark.parametrize(
    ("name", "canonical"),
    [
        ("12.5-17.25", "12.5-17.25"),
        ("12.50-17.250", "12.5-17.25"),
        ("0-1", "0-1"),
        ("00-01.0", "0-1"),
        ("10-20", "10-20"),
        ("0.30000000000000004-1.1", "0.3-1.1"),
        ("0.000000001-1000000000", "0.000000001-1000000000"),
        ("200000s-276000s", "200000s-276000s"),
        ("000s-07s", "0s-7s"),
        (f"0s-{SAMPLES_MAX}s", f"0s-{SAMPLES_MAX}s"),
    ],
)
def test_a_span_has_one_canonical_name(name: str, canonical: str) -> None:
    assert str(parse_span(name)) == canonical
    assert parse_span(canonical) == parse_span(name)


@pytest.mark.parametrize(
    "name",
    [
        *("", "-", "1", "1-", "-1", "12.5s", "12.5s-13s", "1-2s", "1s-2", "-1-2", "1--2", "1-2-3", "+1-2", "1e3-2e3"),
        *("nan-1", "0-inf", "0-nan", ".5-1", "1.-2", "1,5-2", " 1-2", "1-2\n", "1_0-20", "١-٢", "0x1-0x2", "\udcff-1"),
        *("1-1", "2-1", "5s-5s", "6s-5s", "0-0.0000000001", "1.0-1", "0-1000000000.1", f"0s-{SAMPLES_MAX + 1}s"),
        *("0-" + "9" * 100, "0s-" + "9" * 100 + "s", "0." + "0" * 200 + "-1"),
    ],
)
def test_what_is_no_span_has_a_reason(name: str) -> None:
    with pytest.raises(UsageError, match="span"):
        parse_span(name)


times = st.integers(0, 10**13).map(lambda microseconds: microseconds / 10**6)


@given(times, times, st.sampled_from([8000, 11025, 16000, 44100, 48000]), st.integers(0, 2**40))
def test_seconds_are_the_samples_of_a_segment(start: float, end: float, rate: int, length: int) -> None:
    assume(start < end)
    name = f"{start:.6f}-{end:.6f}"
    offset, count = parse_span(name).within(rate, length)
    assert 0 <= offset <= offset + count <= length
    first, last = (min(int(Fraction(time) * rate + Fraction(1, 2)), length) for time in name.split("-"))
    assert (offset, count) == (first, last - first)
    if first < last < length and last < 2**34:
        assert Times(start, end).span(rate, length)[:2] == (offset, count)


def test_samples_are_exact_and_end_with_the_recording() -> None:
    assert SliceSpan(200000, 276000, in_samples=True).within(16000, 10**6) == (200000, 76000)
    assert SliceSpan(200000, 276000, in_samples=True).within(44100, 250000) == (200000, 50000)
    assert SliceSpan(200000, 276000, in_samples=True).within(44100, 1000) == (1000, 0)
    assert parse_span("1-2").within(8000, 0) == (0, 0)
