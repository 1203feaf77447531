"""How often numbers are found, in buckets that are at most a 32nd wide. Counts of parts add up to those of the whole.

A bucket is a number below 64, or one of 32 equal parts between two powers of two, as HdrHistogram has them. So any two
histograms have the same buckets, and bars whose width is a power of two are unions of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

_STEPS = 32
_BITS = 5
# Larger numbers count as this one.
LARGEST = (1 << 52) - 1
BUCKETS = _STEPS * (52 - _BITS) + _STEPS
# Of the bars: the widest part of the numbers that the last bar does not take.
_SHOWN = 0.995
_FEWEST_BARS = 24


def bucket_of(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """The bucket of each number from 0 on."""
    clipped = np.clip(numbers, 0, LARGEST)
    exponents = np.maximum(np.frexp(clipped.astype(np.float64))[1].astype(np.int64) - _BITS - 1, 0)
    found: NDArray[np.int64] = exponents * _STEPS + (clipped >> exponents)
    return found


def start_of(bucket: int) -> int:
    """The smallest number of a bucket."""
    exponent = max(bucket // _STEPS - 1, 0)
    return (bucket - exponent * _STEPS) << exponent


@dataclass(slots=True)
class Histogram:
    """Counts of numbers by bucket, and their exact sum, smallest and largest number."""

    counts: dict[int, int] = field(default_factory=dict)
    total: int = 0
    least: int = 0
    most: int = 0

    @property
    def count(self) -> int:
        """How many numbers there are."""
        return sum(self.counts.values())

    def add(self, numbers: NDArray[Any]) -> None:
        """Count numbers from 0 on."""
        if not len(numbers):
            return
        whole = np.clip(numbers, 0, LARGEST).astype(np.int64)
        counts = np.bincount(bucket_of(whole))
        found = {bucket: int(counts[bucket]) for bucket in np.flatnonzero(counts).tolist()}
        # In parts, as a sum of many large numbers does not fit into 64 bits.
        total = sum(int(part.sum()) for part in np.array_split(whole, len(whole) // 1024 + 1))
        self.merge(Histogram(found, total, int(whole.min()), int(whole.max())))

    def merge(self, other: Histogram) -> None:
        """Add the counts of another one."""
        if not other.counts:
            return
        is_first = not self.counts
        for bucket, count in other.counts.items():
            self.counts[bucket] = self.counts.get(bucket, 0) + count
        self.total += other.total
        self.least = other.least if is_first else min(self.least, other.least)
        self.most = max(self.most, other.most)

    def quantile(self, share: float) -> int:
        """A number that this share of all numbers does not exceed, right to a 32nd."""
        wanted, seen = share * self.count, 0
        for bucket in sorted(self.counts):
            seen += self.counts[bucket]
            if seen >= wanted:
                return min(start_of(bucket + 1) - 1, self.most)
        return self.most

    def bars(self) -> tuple[list[int], int]:
        """Counts of bars of equal width, a power of two, and that width. All that is larger is in one more, last bar,
        if there is any.
        """
        if not self.counts:
            return [], 1
        last = self.quantile(_SHOWN)
        exponent = max((last + 1).bit_length() - _BITS - 1, 0)
        if (last + 1) >> exponent > 2 * _FEWEST_BARS:
            exponent += 1
        bars = [0] * ((last >> exponent) + 2)
        for bucket, count in self.counts.items():
            bars[min(start_of(bucket) >> exponent, len(bars) - 1)] += count
        return bars if bars[-1] else bars[:-1], 1 << exponent

    def to_json(self) -> list[Any]:
        """As JSON, for `from_json`."""
        return [self.total, self.least, self.most, *sorted(self.counts.items())]

    @classmethod
    def from_json(cls, value: Any) -> Histogram:
        """What `to_json` returned. Raises ValueError or TypeError for anything else."""
        total, least, most, *counts = value
        found = cls({int(bucket): int(count) for bucket, count in counts}, int(total), int(least), int(most))
        if any(not 0 <= bucket < BUCKETS or count < 1 for bucket, count in found.counts.items()):
            raise ValueError("no histogram")
        return found
