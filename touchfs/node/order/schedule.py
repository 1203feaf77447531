"""Which source each position of a mixture is of: exactly by weight at every position, computed at any position at once.

Weights are fractions with a common denominator D, so the sources come in a period of D positions. Its k-th sample of a
source with weight w lies between positions floor(k / w) and ceil((k + 1) / w), and of those that may come the one that
must come first does. With this choice every one comes in time, and no source is ever a whole sample away from its
weight (R. Tijdeman: The chairman assignment problem, 1980).

Weights may change at positions. What has been taken of each source by then stays taken.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from touchfs.core.errors import UsageError
from touchfs.node.core.saved import LARGEST

# Positions in a period at most: weights are rounded to so many parts.
PERIOD_MAX = 1 << 16
SOURCES_MAX = 1 << 10

Weights = Sequence[float]


@dataclass(frozen=True, slots=True)
class Stretch:
    """The positions from `start` on, until the weights change.

    `source` is that of each position of a period, shape `(D,)`; `nth` says how often it came before in the period, and
    `shares` how often each source comes in one, shape `(sources,)`. `taken` are samples of each before `start`.
    """

    start: int
    source: NDArray[np.int64]
    nth: NDArray[np.int64]
    shares: NDArray[np.int64]
    taken: NDArray[np.int64]

    def at(self, positions: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the source of each of the positions `(n,)`, and how many samples of it came before."""
        since, period = positions - self.start, len(self.source)
        periods, inside = since // period, since % period
        source = self.source[inside]
        numbers: NDArray[np.int64] = self.taken[source] + periods * self.shares[source] + self.nth[inside]
        return source, numbers

    def counts(self, end: int) -> NDArray[np.int64]:
        """Return how many samples of each source there are before position `end`, shape `(sources,)`."""
        periods, inside = divmod(end - self.start, len(self.source))
        return self.taken + periods * self.shares + np.bincount(self.source[:inside], minlength=len(self.shares))


class Schedule:
    """The stretches of a mixture of `count` sources with these weights, by the positions from which on they hold.

    `seed` decides which of sources comes first that are equally due. Raises UsageError for wrong weights.
    """

    def __init__(self, count: int, weights: Mapping[int, Weights], seed: int) -> None:
        self.seed = seed
        if any(type(start) is not int or not 0 <= start <= LARGEST for start in weights) or 0 not in weights:
            raise UsageError(f"weights hold from positions on, the first ones from 0, and not {list(weights)!r:.80}")
        self.weights = {start: _fractions(count, weights[start]) for start in sorted(weights)}
        for source, shares in enumerate(zip(*self.weights.values(), strict=True)):
            if not any(shares):
                raise UsageError(f"source {source} of the mixture has the weight 0: leave it out")

    @cached_property
    def stretches(self) -> list[Stretch]:
        """Made when the first position is asked for: 0.1 s for a period of 65,536, which weights of length need not."""
        made: list[Stretch] = []
        taken = np.zeros(len(self.weights[0]), np.int64)
        for start, shares in self.weights.items():
            if made:
                taken = made[-1].counts(start)
            made.append(_stretch(start, shares, taken, self.seed))
        return made

    def at(self, positions: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the source of each of the positions `(n,)`, and how many samples of it came before."""
        sources, numbers = np.empty_like(positions), np.empty_like(positions)
        which = np.searchsorted(list(self.weights), positions, side="right") - 1
        for number in np.unique(which).tolist():
            its = np.flatnonzero(which == number)
            sources[its], numbers[its] = self.stretches[number].at(positions[its])
        return sources, numbers

    def counts(self, end: int) -> NDArray[np.int64]:
        """Return how many samples of each source there are before position `end`, shape `(sources,)`."""
        return next(stretch for stretch in reversed(self.stretches) if stretch.start <= end).counts(end)

    def length_within(self, sizes: Sequence[int]) -> int:
        """Return how many positions there are before one that needs more samples of a source than it has."""
        low, high = 0, 1
        while (self.counts(high) <= sizes).all():
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if (self.counts(middle) <= sizes).all() else (low, middle)
        return low


def _fractions(count: int, weights: Weights) -> tuple[int, ...]:
    """Return how often each source comes in a period."""
    if len(weights) != count or not 0 < count <= SOURCES_MAX:
        raise UsageError(f"a mixture has a weight for each source, 1 to {SOURCES_MAX}: {len(weights)} are for {count}")
    for weight in weights:
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not math.isfinite(weight) or weight < 0:
            raise UsageError(f"a weight is a finite number of 0 or more, not {weight!r:.80}")
    # As they are written: 0.1 is a tenth.
    given = [Fraction(repr(weight)) for weight in weights]
    if not (total := sum(given)):
        raise UsageError("all weights are 0: give a source another")
    exact = [weight / total for weight in given]
    period = math.lcm(*(weight.denominator for weight in exact))
    if period > PERIOD_MAX:
        period = PERIOD_MAX
        return _rounded(exact, period)
    return tuple(int(weight * period) for weight in exact)


def _rounded(exact: Sequence[Fraction], period: int) -> tuple[int, ...]:
    """Return whole shares of a period, the largest remainders rounded up. None that has a weight gets nothing."""
    shares = [max(int(weight * period), int(weight > 0)) for weight in exact]
    by_rest = sorted(range(len(exact)), key=lambda i: shares[i] - exact[i] * period)
    for i in by_rest[: max(period - sum(shares), 0)]:
        shares[i] += 1
    return tuple(shares)


def _stretch(start: int, shares: tuple[int, ...], taken: NDArray[np.int64], seed: int) -> Stretch:
    period = sum(shares)
    first = np.random.RandomState(seed & 0xFFFFFFFF).permutation(len(shares)).tolist()
    source, nth = np.empty(period, np.int64), np.empty(period, np.int64)
    # (position from which on it may come, source), and (position before which it must come, which first, source).
    waiting = [(0, i) for i, share in enumerate(shares) if share]
    due: list[tuple[int, int, int]] = []
    came = [0] * len(shares)
    for position in range(period):
        while waiting and waiting[0][0] <= position:
            i = heapq.heappop(waiting)[1]
            heapq.heappush(due, (-(-(came[i] + 1) * period // shares[i]), first[i], i))
        i = heapq.heappop(due)[2]
        source[position], nth[position] = i, came[i]
        came[i] += 1
        heapq.heappush(waiting, (came[i] * period // shares[i], i))
    return Stretch(start, source, nth, np.array(shares), taken)
