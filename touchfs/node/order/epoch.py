"""An epoch, and what is left of it: positions and the ordinals of what comes there.

An epoch that ranks have left is one of fewer positions (`touchfs.node.order.remainder`). One that goes on over another
dataset has the positions that were left and whose samples still exist, and then those of the new samples
(`touchfs.node.order.growth`). Both can be asked at any position, in both directions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from touchfs.node.core.saved import Saved
from touchfs.node.order.batches import Part
from touchfs.node.order.growth import GROWN, Grown, Move, read_grown
from touchfs.node.order.remainder import Remainder, Stage, read_stage

# What an epoch went through before.
AnyStage: TypeAlias = Stage | Grown

# Ordinals computed at a time: few at first for a quick resume, then enough to amortize the cost of NumPy's calls.
FIRST_BLOCK = 16
BLOCK = 1 << 13


class Permutation(Protocol):
    """The permutation of an epoch, of arrays of shape `(n,)`."""

    def __call__(self, positions: NDArray[np.int64], /) -> NDArray[np.int64]: ...

    def inverse(self, ordinals: NDArray[np.int64], /) -> NDArray[np.int64]: ...


class Epoch(Protocol):
    """`size` positions. `positions_of` has -1 for an ordinal that comes at none of them."""

    size: int

    def ordinals(self, positions: NDArray[np.int64], /) -> NDArray[np.int64]:
        """Return the ordinals at positions, arrays of shape `(n,)`."""
        ...

    def positions_of(self, ordinals: NDArray[np.int64], /) -> NDArray[np.int64]:
        """Return the positions of ordinals, arrays of shape `(n,)`."""
        ...


class WholeEpoch:
    """An epoch of `size` ordinals in the order of a permutation."""

    def __init__(self, size: int, permutation: Permutation | None) -> None:
        self.size = size
        self._permutation = permutation

    def ordinals(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        return positions if self._permutation is None else self._permutation(positions)

    def positions_of(self, ordinals: NDArray[np.int64]) -> NDArray[np.int64]:
        return ordinals if self._permutation is None else self._permutation.inverse(ordinals)


class LeftByRanks:
    """What ranks left of an epoch."""

    def __init__(self, epoch: Epoch, remainder: Remainder) -> None:
        self.size = remainder.size
        self._epoch = epoch
        self._remainder = remainder

    def ordinals(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        return self._epoch.ordinals(self._remainder.positions(positions))

    def positions_of(self, ordinals: NDArray[np.int64]) -> NDArray[np.int64]:
        return self._remainder.numbers(self._epoch.positions_of(ordinals))


class GrownEpoch:
    """What is left of `old`, an epoch over another dataset, and after that the samples in `new`, all of them.

    `old_left` of its positions are of `old`; `lost` positions of that are of samples that no longer exist.
    """

    def __init__(self, old: Epoch, move: Move, new: Epoch) -> None:
        self._old, self._move, self._new = old, move, new
        gone = old.positions_of(move.lost.ordinals(np.arange(move.lost.size)))
        self._gone = np.sort(gone[gone >= 0])
        # How many positions that are not gone are before each that is.
        self._before = self._gone - np.arange(len(self._gone))
        self.lost = len(self._gone)
        self.old_left = old.size - self.lost
        self.size = self.old_left + new.size

    def ordinals(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        ordinals = np.empty_like(positions)
        is_old = positions < self.old_left
        old = positions[is_old]
        if len(old):
            old = self._old.ordinals(old + np.searchsorted(self._before, old, side="right"))
            ordinals[is_old] = self._move.moved.ordinals(self._move.kept.numbers(old))
        new = positions[~is_old] - self.old_left
        if len(new):
            ordinals[~is_old] = self._move.new.ordinals(self._new.ordinals(new))
        return ordinals

    def positions_of(self, ordinals: NDArray[np.int64]) -> NDArray[np.int64]:
        positions = np.full(len(ordinals), -1, np.int64)
        numbers = self._move.new.numbers(ordinals)
        is_new = numbers >= 0
        if is_new.any():
            positions[is_new] = self.old_left + self._new.positions_of(numbers[is_new])
        if not is_new.all():
            old = self._move.kept.ordinals(self._move.moved.numbers(ordinals[~is_new]))
            old = self._old.positions_of(old)
            positions[~is_new] = np.where(old < 0, -1, old - np.searchsorted(self._gone, old))
        return positions


class LongerEpoch:
    """What is `left` of an epoch, and after that the ordinals from `first` to before `end`."""

    def __init__(self, left: Epoch, first: int, end: int) -> None:
        self._left, self._first = left, first
        self.size = left.size + end - first

    def ordinals(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """See `Epoch.ordinals`."""
        ordinals, is_left = positions - self._left.size + self._first, positions < self._left.size
        if is_left.any():
            ordinals[is_left] = self._left.ordinals(positions[is_left])
        return ordinals

    def positions_of(self, ordinals: NDArray[np.int64]) -> NDArray[np.int64]:
        """See `Epoch.positions_of`."""
        positions, is_left = ordinals - self._first + self._left.size, ordinals < self._first
        if is_left.any():
            positions[is_left] = self._left.positions_of(ordinals[is_left])
        return positions


def ordinals_of(epoch: Epoch, part: Part, start: int) -> Iterator[int]:
    """Yield the ordinals of a part of an epoch from its own position `start` on."""
    count, block = part.count(epoch.size), FIRST_BLOCK
    while start < count:
        stop = min(start + block, count)
        yield from epoch.ordinals(part.positions(np.arange(start, stop), epoch.size)).tolist()
        start, block = stop, min(block * 4, BLOCK)


def read_stages(saved: Saved) -> list[AnyStage]:
    """Read the stages of a state. Raises FormatError."""
    stages = saved.children("stages")
    return [read_grown(stage) if stage.get("kind") == GROWN else read_stage(stage) for stage in stages]


def positions_left(saved: Saved) -> int:
    """Return how many positions are left of the epoch of a state, over any shards, after its stages."""
    if saved.has("units"):
        return saved.integer("units")
    return size_after(epoch_length(saved), read_stages(saved))


def epoch_length(saved: Saved) -> int:
    """Return how many positions the epoch of a state has, over any shards: in all, before its stages."""
    if saved.has("since") and (since := saved.child("since")).integer("epoch") == saved.integer("epoch"):
        return since.integer("length")
    return saved.child("config").integer("length")


def size_after(length: int, stages: Sequence[AnyStage]) -> int:
    """Return how many positions are left after `stages` of an epoch over a dataset that has `length` samples now."""
    size = next((stage.length for stage in stages if isinstance(stage, Grown)), length)
    for stage in stages:
        size = stage.size if isinstance(stage, Grown) else Remainder(size, stage).size
    return size
