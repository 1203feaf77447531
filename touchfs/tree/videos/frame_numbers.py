"""Inode numbers of the directories and files below a segment of a video, which no catalog has.

Each segment has a run of numbers: its directory `0000`, the directory `frames` in it, and the frames. A run is as long
as the shard's part of the numbers allows, up to `FRAMES_MAX` frames. The numbers of a shard have 41 bits, so they take
512 views: 1,000,000 frames for each of 2,000,000 rows, or 20,000 for each of 100,000,000.

A directory `frames,fps=…` is numbered by a registry (`Numbers`) when it is looked up, and has a run of
`FRAMES_MAX_OF_PLAN` frames. These take 256 views.
"""

from __future__ import annotations

from typing import NamedTuple

from touchfs.tree.inode import ROW_BITS, ROW_MASK, pack, unpack

PLANS_FIRST, ALL_FIRST, ALL_END = 256, 512, 1024
VIEWS = range(PLANS_FIRST, ALL_END)
FRAMES_MAX = 1_000_000
# In a run: the directory of the segment, or the link to a plan; the directory of frames; and then frames.
ABOVE, FRAMES, FIRST_FRAME = 0, 1, 2
_PLAN_STRIDE = 1 << 16
FRAMES_MAX_OF_PLAN = _PLAN_STRIDE - FIRST_FRAME


class Run(NamedTuple):
    """A run of inode numbers: that of a row of a table of `rows`, or of a number of the registry if `rows` is None."""

    shard_id: int
    rows: int | None
    row: int

    def inode(self, place: int) -> int:
        """The inode number of a place in the run."""
        first = PLANS_FIRST if self.rows is None else ALL_FIRST
        number = self.row * stride(self.rows) + place
        return pack(first + (number >> ROW_BITS), self.shard_id, number & ROW_MASK)


def stride(rows: int | None) -> int:
    """The length of runs."""
    if rows is None:
        return _PLAN_STRIDE
    return min(((ALL_END - ALL_FIRST) << ROW_BITS) // max(rows, 1), FRAMES_MAX + FIRST_FRAME)


def is_of_plan(inode: int) -> bool:
    return unpack(inode)[0] < ALL_FIRST


def row_and_place(inode: int, rows: int | None) -> tuple[int, int]:
    """The row or number of the run that a number is in, and the place in it."""
    view, _, low = unpack(inode)
    first = PLANS_FIRST if rows is None else ALL_FIRST
    return divmod((view - first) << ROW_BITS | low, stride(rows))
