"""What a directory entry is, and what the parts of a tree have in common."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from typing import NamedTuple, Protocol

from touchfs.extent import Content


class Entry(NamedTuple):
    """What `stat` tells. `kind` is `stat.S_IFREG` for a file, `S_IFDIR` for a directory, `S_IFLNK` for a link."""

    inode: int
    kind: int
    size: int
    mtime_ns: int

    @property
    def is_directory(self) -> bool:
        return self.kind == stat.S_IFDIR

    @property
    def is_link(self) -> bool:
        return self.kind == stat.S_IFLNK


class Part(Protocol):
    """A directory of the root, and all that is below it: whose inode numbers have its view number.

    Methods take inode numbers, and raise ChangedError for one that is not of this tree (any more).
    """

    def entry(self, inode: int) -> Entry: ...

    def find(self, directory: int, name: bytes) -> Entry | None:
        """The entry of this name in a directory, or None."""
        ...

    def entries(self, directory: int, after: int) -> Iterator[tuple[bytes, Entry, int]]:
        """`(name, entry, place)` of a directory's entries; `after` is the place of the last one seen, at first 0."""
        ...

    def parent(self, directory: int) -> int:
        """The inode number of the directory that a directory is in."""
        ...

    def content(self, inode: int) -> Content:
        """The content of a file, its shard's file opened and verified. Raises UsageError for what is none."""
        ...

    def attributes(self, inode: int) -> dict[str, str]:
        """The extended attributes of a file, without their prefix `user.touchfs.`; none for what is no file."""
        ...

    def link(self, inode: int) -> bytes:
        """The target of a symbolic link. Raises UsageError for what is none."""
        ...
