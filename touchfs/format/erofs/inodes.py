"""Inodes of files, directories and symbolic links, as arrays of the bytes that they take."""

from __future__ import annotations

import stat
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from touchfs.format.erofs.layout import (
    BLOCK,
    BLOCK_BITS,
    CHUNK_BASED,
    CHUNK_INDEXES,
    COMPACT_FILE,
    COMPACT_MAX,
    COMPACT_OWNER_MAX,
    EXTENDED,
    EXTENDED_FILE,
    FLAT_INLINE,
    FLAT_PLAIN,
    INODE_EXTENDED,
    SLOT,
)

Numbers = NDArray[np.int64]
COMPACT_SLOTS, EXTENDED_SLOTS = COMPACT_FILE.itemsize // SLOT, EXTENDED_FILE.itemsize // SLOT
DIRECTORY_SLOTS = INODE_EXTENDED.itemsize // SLOT
# The longest target of a link that is in the block of its inode.
INLINE_MAX = BLOCK - INODE_EXTENDED.itemsize


@dataclass(frozen=True, slots=True)
class Owner:
    """The owner of entries, their permissions by the type of entry (`stat.S_IFREG` etc.), and their time in seconds."""

    user: int
    group: int
    file_mode: int
    directory_mode: int
    mtime: int


@dataclass(frozen=True, slots=True, eq=False)
class FileInodes:
    """Files of one owner: the size in bytes of each, its device (from 1 on), and the block of that with which it
    begins.
    """

    owner: Owner
    sizes: Numbers
    devices: Numbers
    blocks: Numbers

    def slots(self, build_time: int) -> Numbers:
        """How many slots the inode of each takes: more if it does not fit a compact one."""
        owner = self.owner
        fits = 0 <= owner.mtime - build_time <= COMPACT_MAX and max(owner.user, owner.group) <= COMPACT_OWNER_MAX
        return np.where((self.sizes <= COMPACT_MAX) & fits, COMPACT_SLOTS, EXTENDED_SLOTS)


def put_files(slots: NDArray[np.uint8], files: FileInodes, nids: Numbers, first: int, build_time: int) -> None:
    """Write the inodes of files at their nids into `slots`, of shape (n, SLOT), which begin with the nid `first`."""
    size = files.slots(build_time)
    for dtype, slot_count in ((COMPACT_FILE, COMPACT_SLOTS), (EXTENDED_FILE, EXTENDED_SLOTS)):
        chosen = np.flatnonzero(size == slot_count)
        if not len(chosen):
            continue
        sizes, own, owner = files.sizes[chosen], nids[chosen], files.owner
        records = np.zeros(len(chosen), dtype)
        inode, chunk = records["inode"], records["chunk"]
        is_extended = dtype is EXTENDED_FILE
        inode["i_format"] = CHUNK_BASED << 1 | (EXTENDED if is_extended else 0)
        inode["i_mode"] = stat.S_IFREG | owner.file_mode
        inode["i_nlink"] = 1
        inode["i_size"] = sizes
        inode["i_mtime"] = owner.mtime if is_extended else owner.mtime - build_time
        inode["i_u"] = CHUNK_INDEXES | _chunk_bits(sizes)
        inode["i_ino"] = own & 0xFFFFFFFF
        inode["i_uid"], inode["i_gid"] = owner.user, owner.group
        chunk["device_id"], chunk["blkaddr"] = files.devices[chosen], files.blocks[chosen]
        _put(slots, records, own - first)


def put_directories(
    slots: NDArray[np.uint8], owner: Owner, nids: Numbers, first: int, blocks: Numbers, counts: Numbers, links: Numbers
) -> None:
    """Write the inodes of directories, as `put_files`. Each has `counts` blocks, from one of `blocks` on, and `links`
    links.
    """
    records = np.zeros(len(nids), INODE_EXTENDED)
    records["i_format"] = FLAT_PLAIN << 1 | EXTENDED
    records["i_mode"] = stat.S_IFDIR | owner.directory_mode
    records["i_size"] = counts * BLOCK
    records["i_u"] = blocks
    records["i_ino"] = nids & 0xFFFFFFFF
    records["i_uid"], records["i_gid"] = owner.user, owner.group
    records["i_mtime"], records["i_nlink"] = owner.mtime, links
    _put(slots, records, nids - first)


def build_link(owner: Owner, nid: int, target: bytes, block: int) -> bytes:
    """The inode of a symbolic link, with the target behind it if that fits; else the target begins with `block`."""
    record = np.zeros(1, INODE_EXTENDED)
    is_inline = len(target) <= INLINE_MAX
    record["i_format"] = (FLAT_INLINE if is_inline else FLAT_PLAIN) << 1 | EXTENDED
    record["i_mode"] = stat.S_IFLNK | 0o777
    record["i_size"] = len(target)
    record["i_u"] = 0 if is_inline else block
    record["i_ino"] = nid & 0xFFFFFFFF
    record["i_uid"], record["i_gid"] = owner.user, owner.group
    record["i_mtime"], record["i_nlink"] = owner.mtime, 1
    return record.tobytes() + (target if is_inline else b"")


def _chunk_bits(sizes: Numbers) -> Numbers:
    """The bits of the number of blocks of a chunk that has a whole file."""
    blocks = np.maximum((sizes + BLOCK - 1) >> BLOCK_BITS, 1)
    # frexp is exact below 2**53: the bits of blocks - 1
    bits: Numbers = np.frexp((blocks - 1).astype(np.float64))[1].astype(np.int64)
    return bits


def _put(slots: NDArray[np.uint8], records: NDArray[np.void], places: Numbers) -> None:
    width = records.dtype.itemsize // SLOT
    slots[places[:, None] + np.arange(width)] = records.view(np.uint8).reshape(len(records), width, SLOT)
