"""The remainder of an epoch: the positions that earlier ranks did not reach, to be shared by other ranks.

A *stage* is an earlier world size with the cursor that each of its ranks reached. The positions that no rank reached
are renumbered 0, 1, … in order, and the next ranks partition those numbers. Another change of the world size adds
another stage. A number is mapped to a position by arithmetic on the cursors, one integer for each rank, whatever the
dataset's size:

- `stride`: the positions form rows of `world size`. Sorted by cursor, the ranks drop out of the rows one after the
  other, so all rows between two cursors lack the same ranks.
- `block`: the remainder consists of gaps, one from each rank's cursor to the start of the next rank.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from touchfs.core.errors import FormatError
from touchfs.node.core.saved import Saved
from touchfs.node.order.partition import KINDS, MOST_RANKS, TAILS, Partition


@dataclass(frozen=True, slots=True)
class Stage:
    """An earlier partition. `cursors[r]` is how many of its own positions rank r has visited."""

    kind: str
    tail: str
    cursors: tuple[int, ...]

    def as_json(self) -> dict[str, Any]:
        """Return the fields as a state holds them."""
        return {"kind": self.kind, "tail": self.tail, "cursors": list(self.cursors)}


def read_stage(saved: Saved) -> Stage:
    """Read a stage from a state. Raises FormatError."""
    kind, tail, cursors = saved.get("kind"), saved.get("tail"), saved.integers("cursors")
    if kind not in KINDS or tail not in TAILS or not 0 < len(cursors) <= MOST_RANKS:
        raise FormatError(f"{saved.where} is not a stage of an elastic resume: the state is damaged")
    return Stage(kind, tail, tuple(cursors))


class Remainder:
    """The positions, `size` of them, that a stage left of `of` positions."""

    def __init__(self, of: int, stage: Stage) -> None:
        ranks = len(stage.cursors)
        parts = [Partition(rank, ranks, stage.kind, stage.tail) for rank in range(ranks)]
        # The last positions of a padded rank repeat the first ones of other ranks: they are no progress.
        real = [_real(part, of) for part in parts]
        for part, cursor in zip(parts, stage.cursors, strict=True):
            if cursor > part.count(of):
                raise FormatError(f"rank {part.rank} of {ranks} cannot have reached {cursor} of {of} positions")
        cursors = np.minimum(stage.cursors, real)
        self.size = of - int(cursors.sum())
        self._ranks = ranks if stage.kind == "stride" else 0
        if self._ranks:
            self._set_rows(cursors)
        else:
            self._set_gaps(cursors, np.array([part.first(of) for part in parts]), of)

    def positions(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the positions of these numbers, an array of the same shape `(n,)`."""
        part = np.searchsorted(self._before, numbers, side="right") - 1
        inside = numbers - self._before[part]
        if not self._ranks:
            return np.asarray(self._start[part] + inside, np.int64)
        row, column = np.divmod(inside, self._width[part])
        rank = self._open[self._open_at[part] + column]
        return np.asarray((self._start[part] + row) * self._ranks + rank, np.int64)

    def numbers(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the numbers of these positions, -1 for one that is not left. Numbers ascend with positions."""
        if self._ranks == 1:  # as after any state that ranks share
            numbers = positions - self._start[0]
            return np.where((numbers >= 0) & (numbers < self.size), numbers, -1)
        low, high = np.zeros(len(positions), np.int64), np.full(len(positions), self.size)
        while (low < high).any():
            middle = (low + high) // 2
            is_before = (low < high) & (self.positions(np.minimum(middle, self.size - 1)) < positions)
            low, high = np.where(is_before, middle + 1, low), np.where(is_before, high, np.minimum(middle, high))
        found = low < self.size
        found[found] = self.positions(low[found]) == positions[found]
        return np.where(found, low, -1)

    def _set_rows(self, cursors: NDArray[np.int64]) -> None:
        self._start = np.unique(cursors)
        # For each level, the ranks that are still present in the rows from there on; the lists are concatenated.
        open_ = [np.flatnonzero(cursors <= level) for level in self._start]
        self._width = np.array([len(ranks) for ranks in open_])
        self._open = np.concatenate(open_)
        self._open_at = np.cumsum(self._width) - self._width
        self._before = np.concatenate([[0], np.cumsum(np.diff(self._start) * self._width[:-1])]).astype(np.int64)

    def _set_gaps(self, cursors: NDArray[np.int64], firsts: NDArray[np.int64], of: int) -> None:
        # A padded rank may have no position of its own; its run would begin past the end.
        self._start = np.concatenate([[0], np.minimum(firsts + cursors, of)])
        ends = np.concatenate([np.minimum(firsts, of), [of]])
        sizes = ends - self._start
        self._before = np.cumsum(sizes) - sizes


def _real(part: Partition, of: int) -> int:
    if part.tail != "pad":
        return part.count(of)
    if part.kind == "stride":
        return Partition(part.rank, part.world_size).count(of)
    return min(part.count(of), max(0, of - part.first(of)))
