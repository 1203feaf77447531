"""Spans of `slices/`: a name in a path says which part of a recording a slice has.

    slices/12.5-17.25/<shard>/<key>.wav         from 12.5 to 17.25 seconds
    slices/200000s-276000s/<shard>/<key>.wav    from sample 200,000 up to, and without, sample 276,000

Seconds are plain decimals with up to 20 digits after the point, as programs print floats. They are rounded to whole
nanoseconds.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from touchfs.core.errors import UsageError

NANOSECONDS = 10**9
SECONDS_MAX = 10**9
SAMPLES_MAX = 2**63 - 1
_SECONDS = re.compile(r"([0-9]{1,10}(?:\.[0-9]{1,20})?)-([0-9]{1,10}(?:\.[0-9]{1,20})?)")
_SAMPLES = re.compile(r"([0-9]{1,19})s-([0-9]{1,19})s")
_SHOWN_MAX = 80


@dataclass(frozen=True, slots=True)
class SliceSpan:
    """A span from `start` up to `end`: in samples with `in_samples`, else in nanoseconds.

    `str()` is its canonical name: equal spans have equal names.
    """

    start: int
    end: int
    in_samples: bool = False

    def __str__(self) -> str:
        if self.in_samples:
            return f"{self.start}s-{self.end}s"
        return f"{_seconds(self.start)}-{_seconds(self.end)}"

    def within(self, rate: int, length: int) -> tuple[int, int]:
        """`(offset, length)` in samples, of a recording of `length` samples at `rate` Hz: what the recording has of the
        span. A time is the nearest sample, halves up, as in segments.
        """
        first, last = (min(self._sample(time, rate), length) for time in (self.start, self.end))
        return first, last - first

    def _sample(self, time: int, rate: int) -> int:
        return time if self.in_samples else (2 * time * rate + NANOSECONDS) // (2 * NANOSECONDS)


def _seconds(nanoseconds: int) -> str:
    whole, fraction = divmod(nanoseconds, NANOSECONDS)
    return f"{whole}.{fraction:09d}".rstrip("0").rstrip(".")


def parse_span(text: str) -> SliceSpan:
    """Parse the name of a span, canonical or not. Raises UsageError."""
    if (found := _SAMPLES.fullmatch(text)) is not None:
        span, largest = SliceSpan(int(found[1]), int(found[2]), in_samples=True), SAMPLES_MAX
    elif (found := _SECONDS.fullmatch(text)) is not None:
        span, largest = SliceSpan(_nanoseconds(found[1]), _nanoseconds(found[2])), SECONDS_MAX * NANOSECONDS
    else:
        raise UsageError(
            f"{text[:_SHOWN_MAX]!r} is no span: write seconds as 12.5-17.25, samples as 200000s-276000s, or all"
        )
    if span.end > largest:
        raise UsageError(f"the span {text!r} ends after {SECONDS_MAX} seconds or {SAMPLES_MAX} samples")
    if span.start >= span.end:
        raise UsageError(f"the span {text!r} does not end after its start")
    return span


def _nanoseconds(seconds: str) -> int:
    return round(Fraction(seconds) * NANOSECONDS)
