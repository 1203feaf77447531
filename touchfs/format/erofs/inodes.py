"""Inodes of files, directories and symbolic links, as arrays of the bytes that they take."""

from __future__ import annotations

import stat
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from touchfs.format.erofs.chunks import Chunks
from touchfs.format.erofs.layout import (
    BLOCK,
    CHUNK_BASED,
    CHUNK_INDEX,
    CHUNK_INDEXES,
    COMPACT_MAX,
    COMPACT_OWNER_MAX,
    EXTENDED,
    FLAT_INLINE,
    FLAT_PLAIN,
    INODE_COMPACT,
    INODE_EXTENDED,
    SLOT,
)

Numbers = NDArray[np.int64]
COMPACT_SLOTS, EXTENDED_SLOTS = INODE_COMPACT.itemsize // SLOT, INODE_EXTENDED.itemsize // SLOT
_INDEXES_PER_SLOT = SLOT // CHUNK_INDEX.itemsize
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
    begins. `copies` has the block of the image with the copy of its last chunk, 0 if there is none; the image is itself
    the device `own`. (Device 0 is the image, too, but there the kernel looks through all devices.)
    """

    owner: Owner
    sizes: Numbers
    devices: Numbers
    blocks: Numbers
    copies: Numbers
    own: int = 0

    def slots(self, build_time: int) -> Numbers:
        """How many slots the inode of each takes with its indexes: more if it does not fit a compact one."""
        return self._inode_slots(build_time) + -(-self._chunks.counts // _INDEXES_PER_SLOT)

    def put(self, slots: NDArray[np.uint8], nids: Numbers, first: int, build_time: int) -> None:
        """Write the inodes at their nids into `slots`, of shape (n, SLOT), which begin with the nid `first`."""
        places, size, chunks, owner = nids - first, self._inode_slots(build_time), self._chunks, self.owner
        for dtype, slot_count in ((INODE_COMPACT, COMPACT_SLOTS), (INODE_EXTENDED, EXTENDED_SLOTS)):
            chosen = np.flatnonzero(size == slot_count)
            if not len(chosen):  # a number may not fit that no inode has
                continue
            is_extended = dtype is INODE_EXTENDED
            inode = np.zeros(len(chosen), dtype)
            inode["i_format"] = CHUNK_BASED << 1 | (EXTENDED if is_extended else 0)
            inode["i_mode"] = stat.S_IFREG | owner.file_mode
            inode["i_nlink"] = 1
            inode["i_size"] = self.sizes[chosen]
            inode["i_mtime"] = owner.mtime if is_extended else owner.mtime - build_time
            inode["i_u"] = CHUNK_INDEXES | chunks.bits[chosen]
            inode["i_ino"] = nids[chosen] & 0xFFFFFFFF
            inode["i_uid"], inode["i_gid"] = owner.user, owner.group
            _put(slots, inode, places[chosen])
        begin = np.cumsum(chunks.counts) - chunks.counts
        number = np.arange(int(chunks.counts.sum())) - np.repeat(begin, chunks.counts)
        indexes = np.zeros(len(number), CHUNK_INDEX)
        indexes["device_id"] = np.repeat(self.devices, chunks.counts)
        indexes["blkaddr"] = np.repeat(self.blocks, chunks.counts) + (number << np.repeat(chunks.bits, chunks.counts))
        copied = np.flatnonzero(self.copies)
        last = begin[copied] + chunks.counts[copied] - 1
        indexes["device_id"][last], indexes["blkaddr"][last] = self.own, self.copies[copied]
        at = np.repeat((places + size) * _INDEXES_PER_SLOT, chunks.counts) + number
        slots.reshape(-1).view(CHUNK_INDEX)[at] = indexes

    def _inode_slots(self, build_time: int) -> Numbers:
        owner = self.owner
        fits = 0 <= owner.mtime - build_time <= COMPACT_MAX and max(owner.user, owner.group) <= COMPACT_OWNER_MAX
        return np.where((self.sizes <= COMPACT_MAX) & fits, COMPACT_SLOTS, EXTENDED_SLOTS)

    @property
    def _chunks(self) -> Chunks:
        return Chunks.of(self.sizes, self.copies > 0)


def put_directories(
    slots: NDArray[np.uint8], owner: Owner, nids: Numbers, first: int, blocks: Numbers, counts: Numbers, links: Numbers
) -> None:
    """Write the inodes of directories, as `FileInodes.put` does. Each has `counts` blocks, from one of `blocks` on, and
    `links` links.
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


def _put(slots: NDArray[np.uint8], records: NDArray[np.void], places: Numbers) -> None:
    width = records.dtype.itemsize // SLOT
    slots[places[:, None] + np.arange(width)] = records.view(np.uint8).reshape(len(records), width, SLOT)
