"""Directory entries, and the interface of the subtrees of a tree."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from typing import NamedTuple, Protocol

from touchfs.extent import Content


class Entry(NamedTuple):
    """The attributes of a file or directory, as for `stat`: size in bytes, time in ns since 1970.

    The size is None in a listing if a recording must be read to know it, and elsewhere if the recording cannot be read.
    `kind` is `stat.S_IFREG` for a file, `S_IFDIR` for a directory, `S_IFLNK` for a symbolic link.
    """

    inode: int
    kind: int
    size: int | None
    mtime_ns: int

    @property
    def is_directory(self) -> bool:
        """True for a directory."""
        return self.kind == stat.S_IFDIR

    @property
    def is_link(self) -> bool:
        """True for a symbolic link."""
        return self.kind == stat.S_IFLNK


class Subtree(Protocol):
    """A directory of the root and everything below it. The inode numbers in it have its view number.

    Methods take inode numbers, and raise ChangedError for one that is not, or no longer, in this tree.
    """

    def entry(self, inode: int) -> Entry:
        """The entry of an inode."""
        ...

    def find(self, directory: int, name: bytes) -> Entry | None:
        """The entry of this name in a directory, or None."""
        ...

    def entries(self, directory: int, after: int) -> Iterator[tuple[bytes, Entry, int]]:
        """`(name, entry, cookie)` of a directory's entries after the one with the cookie `after`; 0 lists all.

        A cookie is a position in the listing, as `d_off` of readdir(3).
        """
        ...

    def parent(self, directory: int) -> int:
        """The inode number of a directory's parent."""
        ...

    def content(self, inode: int) -> Content:
        """The content of a file. Opens and verifies the shard's file behind it. Raises UsageError for a non-file."""
        ...

    def attributes(self, inode: int) -> dict[str, str]:
        """The extended attributes of a file, without their prefix `user.touchfs.`; empty if it is not a file."""
        ...

    def link(self, inode: int) -> bytes:
        """The target of a symbolic link. Raises UsageError if it is not one."""
        ...
