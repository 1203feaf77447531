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

from touchfs.format.metainfo import cut_span, shown_time

_DECIMALS = 8


@dataclass(frozen=True, slots=True)
class Times:
    """The start of a segment, and its end or its duration, as stored: numbers, or strings that `float()` takes.

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
            return 0, 0, f"{shown_time(self.start)} with {shown_time(until)} is not a time"
        return cut_span(first, last, rate, length, first / rate, last / rate)


def _samples(time: Any, scale: int) -> int:
    """Convert a time to samples. Raises TypeError, ValueError or OverflowError if it is not a finite number."""
    if type(time) is int and scale == 1:  # exact beyond 2**53
        float(time)
        return time
    return floor(round(float(time) * scale, _DECIMALS) + 0.5)
