"""An inode number is an address: 0 | view (11 bits) | shard id (20 bits) | row (32 bits).

So inodes need no table, have the same number in every process and after a remount, and a number is never reused for
another file: a shard that changes gets a new id. In view 0 the rows are the fixed entries, row 1 is the root. Shard id
0 is a view's own directory, and with other rows those of splits in it. In the view `slices` the row is another number,
which holds until the mount ends. Below segments of videos, view and row are a number of 41 bits, of a segment's row and
a frame (`frame_numbers`).
"""

from __future__ import annotations

ROOT = 1
FIXED_VIEW = 0

VIEW_BITS, SHARD_BITS, ROW_BITS = 11, 20, 32
SHARD_IDS_MAX = (1 << SHARD_BITS) - 1
ROW_MASK = (1 << ROW_BITS) - 1
VIEW_SHIFT, VIEWS_END = SHARD_BITS + ROW_BITS, 1 << VIEW_BITS


def pack(view: int, shard_id: int, row: int) -> int:
    return (view << SHARD_BITS | shard_id) << ROW_BITS | row


def unpack(inode: int) -> tuple[int, int, int]:
    """`(view, shard id, row)` of an inode number."""
    directory = inode >> ROW_BITS
    return directory >> SHARD_BITS, directory & SHARD_IDS_MAX, inode & ROW_MASK
