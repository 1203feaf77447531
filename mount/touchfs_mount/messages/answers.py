"""Answers to requests as bytes: the structs `fuse_*_out` of linux/fuse.h (see `requests`)."""

from __future__ import annotations

import stat
import struct
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from touchfs.core.packed_bytes import PackedBytes
from touchfs_mount.messages.requests import MAX_WRITE, Init

# u32 len, s32 error, u64 unique
HEADER = struct.Struct("<IiQ")
# fuse_attr: u64 ino, size, blocks, atime, mtime, ctime; u32 nanoseconds of these, mode, nlink, uid, gid, rdev, blksize,
# flags
_ATTRIBUTES = "QQQQQQIIIIIIIIII"
# u64 nodeid, generation, entry_valid, attr_valid; u32 their nanoseconds; fuse_attr
_ENTRY_FIELDS = f"QQQQII{_ATTRIBUTES}"
_ENTRY = struct.Struct(f"<{_ENTRY_FIELDS}")
# u64 attr_valid, u32 its nanoseconds, u32 dummy; fuse_attr
_ATTR = struct.Struct(f"<QII{_ATTRIBUTES}")
# u64 ino, off; u32 namelen, type
_DIRENT_FIELDS = "QQII"
_DIRENT = struct.Struct(f"<{_DIRENT_FIELDS}")
_DIRENTPLUS = struct.Struct(f"<{_ENTRY_FIELDS}{_DIRENT_FIELDS}")
# No record is smaller. Its words of 8 bytes, and the places of those that files of a directory do not have in common.
DIRENTPLUS_MIN, _WORD = _DIRENTPLUS.size + 8, 8
_WORDS = _DIRENTPLUS.size // _WORD
_NODEID, _INO, _SIZE, _BLOCKS, _DIRENT_INO, _COOKIE, _NAME_LENGTH = 0, 5, 6, 7, 16, 17, 18
# Behind a name, by its length modulo 8: records are aligned.
_PADDING = tuple(bytes(-length % 8) for length in range(8))
# u64 blocks, bfree, bavail, files, ffree; u32 bsize, namelen, frsize, padding, spare[6]
_STATFS = struct.Struct("<QQQQQIII28x")
# u32 size, padding
_GETXATTR = struct.Struct("<I4x")
# u32 major, minor, max_readahead, flags; u16 max_background, congestion_threshold; u32 max_write, time_gran;
# u16 max_pages, map_alignment; u32 flags2, max_stack_depth; u16 request_timeout, unused[11]
_INIT = struct.Struct("<IIIIHHIIHHI28x")

BLOCK_SIZE = 512
# The largest read request without O_DIRECT is 1 MiB. As st_blksize, this is the buffer size of Python's open().
PREFERRED_READ = 1 << 17

# Flags of INIT that are asked for, if the kernel offers them.
_ASYNC_READ, _AUTO_INVAL_DATA, _DO_READDIRPLUS = 1 << 0, 1 << 12, 1 << 13
_NO_OPEN_SUPPORT, _PARALLEL_DIROPS, _MAX_PAGES, _NO_OPENDIR_SUPPORT = 1 << 17, 1 << 18, 1 << 22, 1 << 24
FLAGS = (
    _ASYNC_READ
    | _AUTO_INVAL_DATA
    | _DO_READDIRPLUS
    | _NO_OPEN_SUPPORT
    | _PARALLEL_DIROPS
    | _MAX_PAGES
    | _NO_OPENDIR_SUPPORT
)
_MAJOR, _MINOR = 7, 45
# 256 pages of 4 KiB: a read of 1 MiB.
_PAGES = 256
# How many requests for read-ahead the kernel sends at once, by default 12 a mount: twelve that hang in one shard would
# stop the read-ahead, and so nearly all reads, of all others. From `_CONGESTED` on it skips what nobody waits for.
BACKGROUND_MAX = 4096
_CONGESTED = BACKGROUND_MAX * 3 // 4


class Common(NamedTuple):
    """The attributes that entries of one kind in one directory have in common: the last fields of `fuse_attr`."""

    atime: int
    mtime: int
    ctime: int
    atime_ns: int
    mtime_ns: int
    ctime_ns: int
    mode: int
    links: int
    user: int
    group: int
    device: int
    block_size: int
    flags: int


def common(mode: int, mtime_ns: int, user: int, group: int) -> Common:
    """The attributes of an owner and a time, in ns since 1970. `mode` includes the type."""
    time, rest = divmod(mtime_ns, 1_000_000_000)
    return Common(time, time, time, rest, rest, rest, mode, 1, user, group, 0, PREFERRED_READ, 0)


def entry(inode: int, size: int, common: Common, seconds: int, name_seconds: int) -> bytes:
    """The answer to a lookup. The kernel may keep the attributes for `seconds`, and the name for `name_seconds`."""
    return _ENTRY.pack(inode, 0, name_seconds, seconds, 0, 0, inode, size, -(-size // BLOCK_SIZE), *common)


def missing(seconds: int) -> bytes:
    """The answer to a lookup of a name that is not there, which the kernel may remember for `seconds`."""
    return _ENTRY.pack(0, 0, seconds, *[0] * 19)


def attr(inode: int, size: int, common: Common, seconds: int) -> bytes:
    return _ATTR.pack(seconds, 0, 0, inode, size, -(-size // BLOCK_SIZE), *common)


def dirent(inode: int, mode: int, name: bytes, cookie: int) -> bytes:
    """An entry of READDIR: the next one is asked for by its cookie."""
    return _DIRENT.pack(inode, cookie, len(name), mode >> 12) + name + _PADDING[len(name) & 7]


def direntplus(
    inode: int, mode: int, size: int, common: Common, seconds: int, name_seconds: int, name: bytes, cookie: int
) -> bytes:
    """An entry of READDIRPLUS: `entry` and `dirent` in one, made by one call, as directories have many."""
    blocks, length = -(-size // BLOCK_SIZE), len(name)
    numbers = inode, 0, name_seconds, seconds, 0, 0, inode, size, blocks, *common, inode, cookie, length, mode >> 12
    return _DIRENTPLUS.pack(*numbers) + name + _PADDING[length & 7]


def files_plus(
    inode: int, names: PackedBytes, sizes: NDArray[np.int64], common: Common, seconds: int, cookie: int, room: int
) -> bytes:
    """`direntplus` of many regular files, as many as have room. Inodes and cookies are counted on from the first one.

    NumPy makes a record in a fifth of the time of `direntplus`.
    """
    sizes_of_records = _WORDS + -(-names.lengths // _WORD)
    ends = np.cumsum(sizes_of_records)
    count = int(np.searchsorted(ends, room // _WORD, "right"))
    starts, ends = (ends - sizes_of_records)[:count], ends[:count]
    alike = direntplus(0, stat.S_IFREG, 0, common, seconds, seconds, b"", 0)
    fields = np.repeat(np.frombuffer(alike, "<u8")[np.newaxis], count, axis=0)
    numbers = np.arange(count, dtype=np.uint64)
    for place, first in ((_NODEID, inode), (_INO, inode), (_DIRENT_INO, inode), (_COOKIE, cookie)):
        fields[:, place] = numbers + np.uint64(first)
    fields[:, _SIZE] = sizes[:count]
    fields[:, _BLOCKS] = -(-sizes[:count] // BLOCK_SIZE)
    fields[:, _NAME_LENGTH] |= names.lengths[:count].astype(np.uint64)
    records = np.zeros(int(ends[-1]) if count else 0, "<u8")
    records[starts[:, np.newaxis] + np.arange(_WORDS)] = fields
    for at, (places, letters) in enumerate(names.chosen(slice(count)).words(), _WORDS):
        records[starts[places] + at] = letters
    return records.tobytes()


def statfs(blocks: int, files: int, name_max: int) -> bytes:
    """The answer to STATFS: the blocks of `BLOCK_SIZE` bytes and files that there are, none of them free."""
    return _STATFS.pack(blocks, 0, 0, files, 0, BLOCK_SIZE, name_max, BLOCK_SIZE)


def xattr_size(size: int) -> bytes:
    """The answer to GETXATTR and LISTXATTR without room: how much is needed."""
    return _GETXATTR.pack(size)


def init(offer: Init) -> bytes:
    """The answer to INIT."""
    flags = FLAGS & offer.flags
    background = BACKGROUND_MAX, _CONGESTED
    minor = min(offer.minor, _MINOR)
    return _INIT.pack(_MAJOR, minor, offer.max_readahead, flags, *background, MAX_WRITE, 1, _PAGES, 0, 0)
