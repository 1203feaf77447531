"""A directory with all that is below it: inodes, then the blocks of directories."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from touchfs.format.erofs.directories import DirectoryEntries, EntryNames, build_directories
from touchfs.format.erofs.inodes import EXTENDED_SLOTS, FileInodes, Owner, put_directories
from touchfs.format.erofs.layout import DIRECTORY, REGULAR_FILE, SLOT, SLOTS_PER_BLOCK

Numbers = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class SubtreeRows:
    """Entries of a subtree. Row 0 is its directory; `parents` are rows before those of their entries, and the entries
    of a directory are in the order of their names. `files` has the rows that are not directories, in their order.
    """

    names: EntryNames
    parents: Numbers
    is_file: NDArray[np.bool_]
    files: FileInodes


def build_subtree(rows: SubtreeRows, owner: Owner, first: int, block: int, above: int, build_time: int) -> bytes:
    """Whole blocks, from the block `block` of the image on, with which the nid `first` begins: that of row 0, which is
    in the directory with the nid `above`. Raises FormatError for a name that an image cannot have.
    """
    count = len(rows.parents)
    slots_of = np.full(count, EXTENDED_SLOTS)
    slots_of[rows.is_file] = rows.files.slots(build_time)
    nids = first + np.cumsum(slots_of) - slots_of
    inode_blocks = -(-int(slots_of.sum()) // SLOTS_PER_BLOCK)
    places = np.flatnonzero(~rows.is_file)
    number = np.cumsum(~rows.is_file) - 1  # of the directory that a row is
    children = 1 + np.argsort(rows.parents[1:], kind="stable")
    group = number[rows.parents[children]]
    types = np.where(rows.is_file[children], REGULAR_FILE, DIRECTORY).astype(np.uint8)
    counts = np.bincount(group, minlength=len(places))
    entries = DirectoryEntries(rows.names.take(children), nids[children], types, counts)
    up = nids[rows.parents[places]]
    up[0] = above
    built = build_directories(entries, nids[places], up)
    links = 2 + np.bincount(group[types == DIRECTORY], minlength=len(places))
    slots = np.zeros((inode_blocks * SLOTS_PER_BLOCK, SLOT), np.uint8)
    rows.files.put(slots, nids[rows.is_file], first, build_time)
    put_directories(slots, owner, nids[places], first, block + inode_blocks + built.first, built.blocks, links)
    return slots.tobytes() + built.data
