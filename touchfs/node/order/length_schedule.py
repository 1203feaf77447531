"""Which source each position of a mixture is of, where weights are of length: of seconds, or of tokens.

At any position the share of length that each source has had is its weight, to within one sample. Of the sources that
have not had more than their share, the one comes whose next sample ends first, were all of them read at once, each as
fast as its weight says (J. Bennett, H. Zhang: WF2Q, 1996). That is `schedule`'s rule for samples of one length, but for
when a source may come again, which that rounds down to a whole sample.

A position follows from the lengths of all samples before it. So what sources have had is remembered at the start of
each span of positions, as far as somebody asked, and a span is computed from there. A state holds the last of these.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain, pairwise

import numpy as np
from numpy.typing import NDArray

from touchfs.core.errors import FormatError
from touchfs.core.progress import reached
from touchfs.core.token import State
from touchfs.node.core.saved import LARGEST, Saved
from touchfs.node.order.schedule import Schedule

# Positions in a span: to compute them takes 10 ms.
SPAN = 1 << 12
# Lengths of a source that are asked for at once.
BLOCK = 1 << 9

# From a source, the number of a sample in its epochs one after the other, and a count, to the lengths of so many.
LengthsOf = Callable[[int, int, int], NDArray[np.int64]]


@dataclass(frozen=True, slots=True)
class Taken:
    """How many samples each source has had before a position, and of what length together since the weights changed."""

    counts: tuple[int, ...]
    lengths: tuple[int, ...]

    def as_json(self) -> State:
        """Return the fields as a state holds them."""
        return {"counts": list(self.counts), "lengths": list(self.lengths)}


def read_taken(saved: Saved, sources: int) -> Taken:
    """Read what so many sources had at the start of a span from a state. Raises FormatError."""
    counts, lengths = saved.integers("counts"), saved.integers("lengths")
    fits = len(counts) == len(lengths) == sources and max(sum(counts), sum(lengths)) <= LARGEST
    if not fits or sum(counts) % SPAN:
        raise FormatError(f"{saved.where} does not fit {sources} sources: the state is damaged")
    return Taken(tuple(counts), tuple(lengths))


class LengthSchedule:
    """The sources of the positions of a mixture with the weights of `schedule`, by the lengths of samples.

    Of a sample without a length `lengths_of` raises UsageError.
    """

    def __init__(self, schedule: Schedule, lengths_of: LengthsOf) -> None:
        self._weights = schedule.weights
        self._count = len(schedule.weights[0])
        self._first = np.random.RandomState(schedule.seed & 0xFFFFFFFF).permutation(self._count).tolist()
        self._lengths_of = lengths_of
        # By the span that begins there.
        self._places = {0: Taken((0,) * self._count, (0,) * self._count)}
        self._latest: tuple[int, NDArray[np.int64], NDArray[np.int64]] | None = None

    def at(self, positions: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the source of each of the positions `(n,)`, and how many samples of it came before."""
        sources, numbers = np.empty_like(positions), np.empty_like(positions)
        spans, inside = np.divmod(positions, SPAN)
        for span in np.unique(spans).tolist():
            its = np.flatnonzero(spans == span)
            of_span, of_source = self._span(span)
            sources[its], numbers[its] = of_span[inside[its]], of_source[inside[its]]
        return sources, numbers

    def remember(self, taken: Taken) -> None:
        """Compute positions from a place on that another schedule of these weights and lengths has remembered."""
        self._places[sum(taken.counts) // SPAN] = taken

    def remembered(self, position: int) -> Taken:
        """Return the last place at a position or before it, of those that are remembered."""
        return self._places[self._remembered(position // SPAN)]

    def _remembered(self, span: int) -> int:
        return span if span in self._places else max(each for each in self._places if each < span)

    def _span(self, span: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        first = self._remembered(span)
        for each in range(first, span):
            self._computed(each)
            reached(each + 1 - first, span - first)
        latest = self._latest
        if latest is None or latest[0] != span:
            self._latest = latest = (span, *self._computed(span))
        return latest[1:]

    def _computed(self, span: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the sources and numbers of a span, and remember the place behind it."""
        place, start = self._places[span], span * SPAN
        counts, lengths = list(place.counts), list(place.lengths)
        coming = [chain.from_iterable(self._blocks(source, count)) for source, count in enumerate(counts)]
        heads = list(map(next, coming))
        sources: list[int] = []
        numbers: list[int] = []
        for first, end in pairwise([start, *(at for at in self._weights if start < at < start + SPAN), start + SPAN]):
            if first in self._weights:
                lengths = [0] * self._count
            weights = self._weights[max(at for at in self._weights if at <= first)]
            whole, total = sum(weights), sum(lengths)
            # (length of all from which on it may come, source), and (that by which it is due, which first, source).
            waiting = [(-(-lengths[i] * whole // weight), i) for i, weight in enumerate(weights) if weight]
            heapq.heapify(waiting)
            due: list[tuple[int, int, int]] = []
            for _ in range(first, end):
                while waiting and waiting[0][0] <= total:
                    i = heapq.heappop(waiting)[1]
                    heapq.heappush(due, ((lengths[i] + heads[i]) * whole // weights[i], self._first[i], i))
                i = heapq.heappop(due)[2]
                sources.append(i)
                numbers.append(counts[i])
                counts[i] += 1
                lengths[i] += heads[i]
                total += heads[i]
                heads[i] = next(coming[i])
                heapq.heappush(waiting, (-(-lengths[i] * whole // weights[i]), i))
        self._places[span + 1] = Taken(tuple(counts), tuple(lengths))
        return np.array(sources, np.int64), np.array(numbers, np.int64)

    def _blocks(self, source: int, number: int) -> Iterator[list[int]]:
        while True:
            yield self._lengths_of(source, number, BLOCK).tolist()
            number += BLOCK
