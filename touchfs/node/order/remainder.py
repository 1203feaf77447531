"""What is left of an epoch after some ranks went some way, shared anew by other ranks.

A *stage* is a world size that was, and how far each of its ranks came. The positions that no rank had come to, in
order, are numbered 0, 1, … again, and the next ranks partition those numbers. A second change adds a second stage. A
number is turned into a position by arithmetic on the cursors, an integer for each rank, whatever the dataset's size:

- `stride`: sorted by cursor, ranks drop out of the rows of `world size` positions one after the other, so between two
  cursors each row lacks the same ranks.
- `block`: what is left are the gaps between what was consumed, one behind each rank's cursor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from touchfs.errors import FormatError
from touchfs.node.core.saved import Saved
from touchfs.node.order.partition import KINDS, MOST_RANKS, TAILS, Partition


@dataclass(frozen=True, slots=True)
class Stage:
    """`cursors[r]` is how many of its own positions rank r has gone through."""

    kind: str
    tail: str
    cursors: tuple[int, ...]

    def as_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "tail": self.tail, "cursors": list(self.cursors)}


def read_stage(saved: Saved) -> Stage:
    kind, tail, cursors = saved.get("kind"), saved.get("tail"), saved.integers("cursors")
    if kind not in KINDS or tail not in TAILS or not 0 < len(cursors) <= MOST_RANKS:
        raise FormatError(f"{saved.where} is not a stage of an elastic resume: the state is damaged")
    return Stage(kind, tail, tuple(cursors))


class Remainder:
    """What a stage left of `of` positions; `size` of them."""

    def __init__(self, of: int, stage: Stage) -> None:
        ranks = len(stage.cursors)
        parts = [Partition(rank, ranks, stage.kind, stage.tail) for rank in range(ranks)]
        # A padded rank's last positions are other ranks' first ones: they are no progress.
        real = [_real(part, of) for part in parts]
        for part, cursor in zip(parts, stage.cursors, strict=True):
            if cursor > part.count(of):
                raise FormatError(f"rank {part.rank} of {ranks} cannot have come to {cursor} of {of} positions")
        cursors = np.minimum(stage.cursors, real)
        self.size = of - int(cursors.sum())
        self._ranks = ranks if stage.kind == "stride" else 0
        if self._ranks:
            self._set_rows(cursors)
        else:
            self._set_gaps(cursors, np.array([part.first(of) for part in parts]), of)

    def positions(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        part = np.searchsorted(self._before, numbers, side="right") - 1
        inside = numbers - self._before[part]
        if not self._ranks:
            return np.asarray(self._start[part] + inside, np.int64)
        row, column = np.divmod(inside, self._width[part])
        rank = self._open[self._open_at[part] + column]
        return np.asarray((self._start[part] + row) * self._ranks + rank, np.int64)

    def _set_rows(self, cursors: NDArray[np.int64]) -> None:
        self._start = np.unique(cursors)
        # The ranks still to come in the rows from each level on, one list after the other.
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


def remainders(size: int, stages: Sequence[Stage]) -> list[Remainder]:
    """Of one stage after the other."""
    left = []
    for stage in stages:
        left.append(Remainder(size, stage))
        size = left[-1].size
    return left
