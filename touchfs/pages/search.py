"""A search: the samples of an order that pass a filter, from a place on, as far as the time goes.

Nothing is kept between two searches: the next one begins at the place where this one ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import monotonic
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from touchfs.select.expression import Where
from touchfs.select.facts import SampleFacts
from touchfs.select.predicates import OfKeys
from touchfs.select.selection import AnySamples

# The positions of the places from one to another.
Order: TypeAlias = Callable[[int, int], NDArray[np.int64]]
# Samples whose places are computed together.
_STEP = 64
# Keys that are looked up together. They become more as long as that takes no longer.
_KEYS_MOST, _KEYS_SECONDS = 1 << 16, 0.02


class Search:
    """A search for a filter. It has come to `place`; `absent` are the fields that no sample had until there."""

    def __init__(self, samples: AnySamples, where: Where, place: int) -> None:
        self.place = place
        self.absent = {path[0] for path in where.fields}
        self._samples = samples
        self._where = where
        self._facts = SampleFacts(samples, {*self.absent})

    def found(
        self, order: Order, total: int, until: float, clock: Callable[[], float] = monotonic, *, is_stored: bool = False
    ) -> Iterator[tuple[int, int]]:
        """Yield the places of samples that pass, each with its position, until it is so late. It looks at one sample
        at least. `is_stored` says that positions are in stored order: then a filter by keys alone reads nothing else.
        """
        if is_stored and self._where.of_keys is not None and self._where.fields == {("key",)}:
            yield from self._by_keys(self._where.of_keys, order, total, until, clock)
            return
        for place, position in walk(order, total, self.place):
            self.place = place + 1
            for record in self._facts.records(position, position + 1):
                self.absent -= record.keys()
                if self._where.matches(record):
                    yield place, position
            if clock() >= until:
                return

    def _by_keys(
        self, of_keys: OfKeys, order: Order, total: int, until: float, clock: Callable[[], float]
    ) -> Iterator[tuple[int, int]]:
        self.absent.clear()  # each sample has a key
        step, now = _STEP, clock()
        while self.place < total:
            first, end = self.place, min(self.place + step, total)
            positions = order(first, end)
            must, may = map(np.concatenate, zip(*map(of_keys, self._samples.keys(positions)), strict=True))
            for at in np.flatnonzero(may).tolist():
                place, position = first + at, int(positions[at])
                self.place = place + 1
                if must[at] or any(map(self._where.rest, self._facts.records(position, position + 1))):
                    yield place, position
            self.place, before, now = end, now, clock()
            if now >= until:
                return
            step = min(2 * step, _KEYS_MOST) if now - before < _KEYS_SECONDS else max(step // 2, _STEP)


def walk(order: Order, total: int, place: int, step: int = 1) -> Iterator[tuple[int, int]]:
    """The places of an order from one on, up or down, each with its position."""
    while 0 <= place < total:
        low, high = (place, min(place + _STEP, total)) if step > 0 else (max(place + 1 - _STEP, 0), place + 1)
        yield from zip(range(low, high)[::step], order(low, high).tolist()[::step], strict=True)
        place = high if step > 0 else low - 1
