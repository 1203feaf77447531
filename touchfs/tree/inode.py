"""An inode number is an address: 0 | view (11 bits) | shard id (20 bits) | row (32 bits).

So it needs no table, is the same in every process and after a remount, and is never given to another file: a shard
that changes gets a new id. In view 0 the rows are the fixed entries, row 1 the root; shard id 0 is a view's own
directory.
"""

from __future__ import annotations

ROOT = 1
FIXED_VIEW = 0

VIEW_BITS, SHARD_BITS, ROW_BITS = 11, 20, 32
SHARD_IDS_MAX = (1 << SHARD_BITS) - 1
ROW_MASK = (1 << ROW_BITS) - 1


def pack(view: int, shard_id: int, row: int) -> int:
    return (view << SHARD_BITS | shard_id) << ROW_BITS | row


def unpack(inode: int) -> tuple[int, int, int]:
    """`(view, shard id, row)`."""
    place = inode >> ROW_BITS
    return place >> SHARD_BITS, place & SHARD_IDS_MAX, inode & ROW_MASK
