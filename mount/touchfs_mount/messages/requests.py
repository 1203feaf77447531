"""Requests of the kernel: the bytes of a message to a `Request`.

Source: `include/uapi/linux/fuse.h` of Linux, protocol 7.31 to 7.45. A message is a `fuse_in_header` and the structs of
its opcode. A request that this file system answers with the same errno whatever it asks for is not parsed further.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple

from touchfs.core.errors import FormatError

# u32 len, u32 opcode, u64 unique, u64 nodeid, u32 uid, u32 gid, u32 pid, u32 total_extlen and padding
HEADER = struct.Struct("<IIQQIIII")
# Set in `unique` of a request that the kernel sends once more (FUSE_UNIQUE_RESEND).
RESENT = 1 << 63
# The largest message that the kernel sends us: a header and the value of an extended attribute. The kernel wants room
# for `MAX_WRITE` and 4,096 bytes at least.
MAX_WRITE = 1 << 12
BUFFER_SIZE = 1 << 17


class Opcode(IntEnum):
    """`enum fuse_opcode`."""

    LOOKUP = 1
    FORGET = 2
    GETATTR = 3
    SETATTR = 4
    READLINK = 5
    SYMLINK = 6
    MKNOD = 8
    MKDIR = 9
    UNLINK = 10
    RMDIR = 11
    RENAME = 12
    LINK = 13
    OPEN = 14
    READ = 15
    WRITE = 16
    STATFS = 17
    RELEASE = 18
    FSYNC = 20
    SETXATTR = 21
    GETXATTR = 22
    LISTXATTR = 23
    REMOVEXATTR = 24
    FLUSH = 25
    INIT = 26
    OPENDIR = 27
    READDIR = 28
    RELEASEDIR = 29
    FSYNCDIR = 30
    GETLK = 31
    SETLK = 32
    SETLKW = 33
    ACCESS = 34
    CREATE = 35
    INTERRUPT = 36
    BMAP = 37
    DESTROY = 38
    IOCTL = 39
    POLL = 40
    NOTIFY_REPLY = 41
    BATCH_FORGET = 42
    FALLOCATE = 43
    READDIRPLUS = 44
    RENAME2 = 45
    LSEEK = 46
    COPY_FILE_RANGE = 47
    SETUPMAPPING = 48
    REMOVEMAPPING = 49
    SYNCFS = 50
    TMPFILE = 51
    STATX = 52
    COPY_FILE_RANGE_64 = 53


_NAMED = frozenset(Opcode)


class Request(NamedTuple):
    """One request: `inode` is what it is about, `user` and `process` are the caller's ids.

    `offset` and `size` are those of a read or listing, and `size` the room for an extended attribute. `offset` of an
    INTERRUPT is the `unique` of the request that it interrupts. `name` is that of a lookup or an extended attribute.
    """

    opcode: int
    unique: int
    inode: int
    user: int
    process: int
    offset: int = 0
    size: int = 0
    name: bytes = b""

    def __str__(self) -> str:
        name = Opcode(self.opcode).name if self.opcode in _NAMED else f"opcode {self.opcode}"
        return " ".join([name, *(f"{field}={value!r}" for field, value in self._asdict().items() if field != "opcode")])

    @property
    def key(self) -> int:
        """A number other than 0 for the operation and the file: all reads of a file have the same one."""
        return hash((self.opcode, self.inode, self.name)) or 1


# fuse_read_in: u64 fh, u64 offset, u32 size, u32 read_flags, u64 lock_owner, u32 flags, u32 padding
_READ = struct.Struct("<8xQI20x")
# fuse_getxattr_in: u32 size, u32 padding
_GETXATTR = struct.Struct("<I4x")
# fuse_interrupt_in: u64 unique
_INTERRUPT = struct.Struct("<Q")
# fuse_init_in: u32 major, minor, max_readahead, flags; the rest, since 7.36, is not needed
_INIT = struct.Struct("<IIII")


class Init(NamedTuple):
    """The kernel's first message, `fuse_init_in`: its version, and the flags that it offers."""

    unique: int
    major: int
    minor: int
    max_readahead: int
    flags: int


def parse(message: bytes) -> Request:
    """Parse a message. Raises FormatError if it is not a request."""
    try:
        length, opcode, unique, inode, user, _, process, _ = HEADER.unpack_from(message)
        if length != len(message):
            raise FormatError(f"a message of {len(message)} bytes claims {length}")
        offset, size, name = _FIELDS[opcode](message) if opcode in _FIELDS else (0, 0, b"")
        return Request(opcode, unique, inode, user, process, offset, size, name)
    except struct.error:
        raise FormatError(f"a message of {len(message)} bytes is too short") from None


def _read(message: bytes) -> tuple[int, int, bytes]:
    offset, size = _READ.unpack_from(message, HEADER.size)
    return offset, size, b""


def _lookup(message: bytes) -> tuple[int, int, bytes]:
    return 0, 0, _name(message, HEADER.size)


def _getxattr(message: bytes) -> tuple[int, int, bytes]:
    (size,) = _GETXATTR.unpack_from(message, HEADER.size)
    return 0, size, _name(message, HEADER.size + _GETXATTR.size)


def _listxattr(message: bytes) -> tuple[int, int, bytes]:
    (size,) = _GETXATTR.unpack_from(message, HEADER.size)
    return 0, size, b""


def _interrupt(message: bytes) -> tuple[int, int, bytes]:
    (unique,) = _INTERRUPT.unpack_from(message, HEADER.size)
    return unique, 0, b""


# `offset`, `size` and `name` of a request.
_FIELDS: dict[int, Callable[[bytes], tuple[int, int, bytes]]] = {
    Opcode.LOOKUP: _lookup,
    Opcode.READ: _read,
    Opcode.READDIR: _read,
    Opcode.READDIRPLUS: _read,
    Opcode.GETXATTR: _getxattr,
    Opcode.LISTXATTR: _listxattr,
    Opcode.INTERRUPT: _interrupt,
}


def parse_init(message: bytes) -> Init:
    """Parse the first message. Raises FormatError if it is another one."""
    request = parse(message)
    if request.opcode != Opcode.INIT or len(message) < HEADER.size + _INIT.size:
        raise FormatError("the kernel's first message is no INIT")
    return Init(request.unique, *_INIT.unpack_from(message, HEADER.size))


def _name(message: bytes, start: int) -> bytes:
    """The name from `start` to the zero that ends it."""
    end = message.find(b"\0", start)
    if end < 0:
        raise FormatError("a name does not end")
    return message[start:end]
