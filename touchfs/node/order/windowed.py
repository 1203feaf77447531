"""A windowed shuffle: a permutation that stays near the order of the data, so that each part of it is fetched once.

The ordinals are cut into chunks of neighbours, the chunks are permuted, and the samples are permuted within windows of
that sequence: what an iteration reads next always lies in the chunks of one window. A sample can come up anywhere in an
epoch, beside samples of 15 other places.

With *lanes*, the sequence of chunks is cut into that many equal parts, each with windows of its own, and position p is
in lane p modulo lanes: so a rank whose positions are those of some lanes reads the chunks of these lanes alone. Only
chunks at the ends of lanes belong to two of them.

Any position is computed at once, in both directions. Permutations of chunks and of each window are `Feistel`'s, whose
keys are SplitMix64's numbers (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from touchfs.core.errors import UsageError
from touchfs.core.token import State
from touchfs.node.order.feistel import ROUNDS, Feistel
from touchfs.node.order.partition import check_count

# Chunks in a window: so many places of the dataset are mixed. With 32, reads of a dataset that has 10 windows move 2.1x
# their bytes, as blocks at the ends of chunks are fetched twice; with 16, 1.6x.
CHUNKS = 16
MOST_LANES = 1 << 16
# With so many numbers of each window in a call, windows are permuted one after the other.
NUMBERS_EACH = 1 << 10
WORD = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Window:
    """How a windowed shuffle mixes: `size` samples are in the windows of all `lanes` together.

    Raises UsageError for numbers that make no windows.
    """

    size: int
    lanes: int = 1

    def __post_init__(self) -> None:
        check_count(self.size, "window")
        check_count(self.lanes, "lanes")
        if not 0 < self.lanes <= MOST_LANES:
            raise UsageError(f"there are 1 to {MOST_LANES} lanes, not {self.lanes}")
        if self.size < self.lanes:
            raise UsageError(f"a window has 1 or more samples for each lane: {self.size} are too few for {self.lanes}")

    @property
    def chunk(self) -> int:
        """How many neighbours stay together."""
        return max(1, self.size // CHUNKS)

    def config(self) -> State:
        """Return what a state must agree with."""
        return {"order": "windowed", "window": self.size, "chunk": self.chunk, "lanes": self.lanes}


class Windowed:
    """The permutation of `size` ordinals for a window and a seed."""

    __slots__ = ("_chunk", "_chunks", "_lanes", "_long", "_seed", "_short", "_short_at", "_width", "size")

    def __init__(self, size: int, window: Window, seed: int) -> None:
        self.size = size
        self._seed = seed & WORD
        self._lanes = window.lanes
        self._width = window.size // window.lanes
        self._chunk = window.chunk
        self._chunks = Feistel(-(-size // window.chunk), self._keys(np.array([0])))
        # The last chunk of the data may be short, and come anywhere.
        last = self._chunks.size - 1
        self._short = size - last * window.chunk
        self._short_at = int(self._chunks.inverse(np.array([last]))[0]) * window.chunk if size else 0
        # The first lanes may have one sample more than the others.
        self._long = size % window.lanes

    def __call__(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the ordinals at these positions, an array of the same shape `(n,)`."""
        inside, lane = np.divmod(positions, self._lanes)
        return self._ordinals(self._starts(lane) + self._in_windows(lane, inside, Feistel.__call__))

    def inverse(self, ordinals: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the positions of these ordinals."""
        places = self._places(ordinals)
        each = self.size // self._lanes
        lane = np.maximum(places // (each + 1), (places - self._long) // max(each, 1))
        inside = self._in_windows(lane, places - self._starts(lane), Feistel.inverse)
        return inside * self._lanes + lane

    def _starts(self, lane: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the first places of lanes in the sequence of chunks."""
        return lane * (self.size // self._lanes) + np.minimum(lane, self._long)

    def _in_windows(
        self,
        lane: NDArray[np.int64],
        inside: NDArray[np.int64],
        permuted: Callable[[Feistel, NDArray[np.int64]], NDArray[np.int64]],
    ) -> NDArray[np.int64]:
        """Return what the permutations of their windows make of these numbers in their lanes."""
        window, within = np.divmod(inside, self._width)
        first = inside - within
        numbers, which = np.unique(window * self._lanes + lane, return_inverse=True)
        keys = self._keys(1 + numbers)
        # All windows are equally long, but for the last ones of lanes.
        lengths = np.minimum(self._width, self.size // self._lanes + (lane < self._long) - first)
        # All numbers of a window have the same keys, so large windows take less time one after the other.
        is_each = len(numbers) * NUMBERS_EACH <= len(inside)
        groups, result = which if is_each else lengths, np.empty_like(inside)
        for group in np.unique(groups).tolist():
            its = np.flatnonzero(groups == group)
            permutation = Feistel(int(lengths[its[0]]), keys[:, which[its[:1] if is_each else its]])
            result[its] = first[its] + permuted(permutation, within[its])
        return result

    def _ordinals(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the ordinals at places in the sequence of chunks."""
        moved = np.where(places < self._short_at + self._short, places, places + self._chunk - self._short)
        slot, inside = np.divmod(moved, self._chunk)
        first, last = (int(slot.min()), int(slot.max())) if len(slot) else (0, 0)
        if last - first < len(slot):  # they are few, as those of positions one after the other
            slot = self._chunks(np.arange(first, last + 1))[slot - first]
        else:
            slot = self._chunks(slot)
        return np.asarray(slot * self._chunk + inside, np.int64)

    def _places(self, ordinals: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the places of ordinals in the sequence of chunks: the inverse of `_ordinals`."""
        chunk, inside = np.divmod(ordinals, self._chunk)
        place = self._chunks.inverse(chunk) * self._chunk + inside
        return np.where(place < self._short_at + self._chunk, place, place - self._chunk + self._short)

    def _keys(self, numbers: NDArray[np.int64]) -> NDArray[np.uint64]:
        """Return the keys of permutations of these numbers, of shape `(ROUNDS, n)`."""
        seed = _mixed(np.array(self._seed, np.uint64))
        return _mixed(
            seed + np.arange(ROUNDS, dtype=np.uint64)[:, None] + np.uint64(ROUNDS) * numbers.astype(np.uint64)
        )


def _mixed(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return SplitMix64's number for each state."""
    u = np.uint64
    with np.errstate(over="ignore"):  # of a scalar
        x = x * u(0x9E3779B97F4A7C15)
        x = (x ^ (x >> u(30))) * u(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> u(27))) * u(0x94D049BB133111EB)
        return x ^ (x >> u(31))
