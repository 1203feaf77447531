"""The interface of the data tree and of the control directory. Each answers the requests for its own inodes."""

from __future__ import annotations

import stat
from collections.abc import Awaitable, Coroutine
from typing import Any, Protocol, TypeAlias, TypeVar

import pyfuse3

from touchfs.extent import Buffer
from touchfs.tree.entry import Entry
from touchfs_mount.requests.access import OUR_OWNERSHIP
from touchfs_mount.requests.attributes import attributes_of

# `.` and `..` come first in every listing; the cookies of a branch are counted on from them.
DOTS = 2

T = TypeVar("T")
# What a handler returns: the answer, or a coroutine that waits for it. Most answers are known at once, and a coroutine
# for each of them would take a tenth of a microsecond.
Answer: TypeAlias = T | Coroutine[Any, Any, T]


class Readable(Protocol):
    """The content of an open file."""

    def read(self, offset: int, length: int) -> Buffer:
        """Read bytes. May block."""
        ...

    def read_nowait(self, offset: int, length: int) -> Buffer | None:
        """Read bytes, or return None if that would block."""
        ...


class Branch(Protocol):
    """A part of a mount, with its own range of inode numbers and handles. All methods may raise FUSEError, and the
    errors of `touchfs.errors`. The handle of a directory is its inode number.
    """

    def lookup(self, parent: int, name: bytes, user: int) -> Answer[pyfuse3.EntryAttributes]:
        """The attributes of the entry of a name; `missing` if there is none. `user` is the id of the caller."""
        ...

    def getattr(self, inode: int) -> Answer[pyfuse3.EntryAttributes]:
        """The attributes of an inode."""
        ...

    def readlink(self, inode: int) -> Awaitable[bytes]:
        """The target of a symbolic link."""
        ...

    def parent(self, directory: int) -> Awaitable[int]:
        """The inode number of a directory's parent."""
        ...

    def readdir(self, directory: int, after: int, token: pyfuse3.ReaddirToken) -> Awaitable[bool]:
        """Reply the entries after the one with the cookie `after`, with `DOTS` more as their cookies. False if the
        reply is full.
        """
        ...

    def open(self, inode: int, flags: int, user: int) -> Answer[pyfuse3.FileInfo]:
        """Open a file. `user` is the id of the caller."""
        ...

    def content(self, handle: int) -> Awaitable[Readable]:
        """The content of an open file, whether it was opened in this worker or in another one."""
        ...

    def read(self, handle: int, content: Readable, offset: int, length: int) -> Awaitable[Buffer]:
        """Read bytes in a thread, because `content` would block."""
        ...

    def write(self, handle: int, offset: int, data: bytes) -> Awaitable[int]:
        """Write to a file. Returns the number of bytes."""
        ...

    def release(self, handle: int) -> Answer[None]:
        """Release an open file."""
        ...

    def xattr(self, inode: int, name: str) -> Awaitable[str | None]:
        """The value of the extended attribute `user.touchfs.NAME`, or None if there is none."""
        ...

    def xattrs(self, inode: int) -> Awaitable[list[str]]:
        """The names of these attributes, without their prefix."""
        ...

    def mkdir(self, parent: int, name: bytes, requester: str) -> Awaitable[pyfuse3.EntryAttributes]:
        """Create a directory. `requester` is `uid:pid` of the caller."""
        ...

    def rmdir(self, parent: int, name: bytes, requester: str) -> Awaitable[None]:
        """Remove a directory. `requester` is `uid:pid` of the caller."""
        ...

    def setattr(
        self, inode: int, attributes: pyfuse3.EntryAttributes, fields: pyfuse3.SetattrFields
    ) -> Awaitable[pyfuse3.EntryAttributes]:
        """Change attributes."""
        ...

    def change(self, inode: int) -> Awaitable[None]:
        """Change anything else at an inode."""
        ...


def reply_dots(directory: int, parent: int, start: int, token: pyfuse3.ReaddirToken) -> bool:
    """Reply `.` and `..`; the kernel uses only their inode numbers. False if the reply is full."""
    dots = ((b".", directory), (b"..", parent))
    return all(
        pyfuse3.readdir_reply(token, name, attributes_of(Entry(inode, stat.S_IFDIR, 0, 0), 0, OUR_OWNERSHIP), cookie)
        for cookie, (name, inode) in enumerate(dots[start:], start + 1)
    )
