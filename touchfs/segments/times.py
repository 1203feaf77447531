"""The times of a segment, and the samples of a recording that they mean.

A time in seconds is the nearest sample, halves up. A segment with a duration is that many samples long, so that its
length depends on its duration alone, as in Lhotse. Products are rounded to 8 decimals of a sample first, because of
floats that should be exactly a half. Sample counts are taken as they are.

The result is always inside the recording. What had to be changed for that is the `problem`, one line for a person.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import floor
from typing import Any

_DECIMALS = 8
_SHOWN_MAX = 80


@dataclass(frozen=True, slots=True)
class Times:
    """When a segment begins, and either its end or its duration, as stored: numbers, or strings that `float()` takes.

    If both are None, or `end` is -1, the segment ends with the recording. With `in_samples` they are sample counts at
    the recording's own rate, else seconds.
    """

    start: Any
    end: Any = None
    duration: Any = None
    in_samples: bool = False

    def span(self, rate: int, length: int) -> tuple[int, int, str | None]:
        """Return `(offset, length, problem)` in samples, always inside a recording of `length` samples at `rate` Hz."""
        scale = 1 if self.in_samples else rate
        try:
            first = _samples(self.start, scale)
            if self.end is not None and float(self.end) != -1:
                last = _samples(self.end, scale)
            elif self.end is None and self.duration is not None:
                last = first + _samples(self.duration, scale)
            else:
                last = max(first, length)
        except (TypeError, ValueError, OverflowError):  # no number, NaN, infinite
            until = self.duration if self.end is None else self.end
            return 0, 0, f"{_shown(self.start)} with {_shown(until)} is not a time"
        return _inside(first, last, rate, length)


def _inside(first: int, last: int, rate: int, length: int) -> tuple[int, int, str | None]:
    """Return the part of `[first, last)` that is inside a recording, and what is wrong with it."""
    start, end, limit = first / rate, last / rate, length / rate
    if first >= length:
        return length, 0, f"starts at {start} s, past the recording's end at {limit} s"
    if last <= first:
        return max(first, 0), 0, f"ends at {end} s, less than a sample after its start at {start} s"
    if last <= 0:
        return 0, 0, f"ends at {end} s, before the recording begins"
    problems = []
    if first < 0:
        problems.append(f"starts at {start} s, before the recording: cut at 0 s")
    if last > length:
        problems.append(f"ends at {end} s, past the recording's end: cut at {limit} s")
    first, last = max(first, 0), min(last, length)
    return first, last - first, "; ".join(problems) or None


def _samples(time: Any, scale: int) -> int:
    """Convert a time to samples. Raises TypeError, ValueError or OverflowError if it is not a finite number."""
    if type(time) is int and scale == 1:  # exact beyond 2**53
        float(time)
        return time
    return floor(round(float(time) * scale, _DECIMALS) + 0.5)


def _shown(value: object) -> str:
    try:
        text = repr(value)
    except (RecursionError, ValueError):  # nested too deep, or an integer of too many digits
        text = type(value).__name__
    return text if len(text) <= _SHOWN_MAX else text[:_SHOWN_MAX] + "…"
