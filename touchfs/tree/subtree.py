"""The interface of the subtrees of a tree, and the one that is empty."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from touchfs.core.errors import ChangedError, UsageError
from touchfs.core.extent import Content
from touchfs.tree.entry import Entry
from touchfs.tree.inode import ROOT
from touchfs.tree.open_shards import NonblockingShards


class Subtree(Protocol):
    """A directory of the root and everything below it. The inode numbers in it have its view number.

    Methods take inode numbers, and raise ChangedError for one that is not, or no longer, in this tree.
    """

    def nonblocking(self, shards: NonblockingShards) -> Subtree:
        """The same subtree for a thread that must block neither on shards nor on a registry nor on what is read once.

        A call that would block raises WouldBlockError.
        """
        ...

    def entry(self, inode: int) -> Entry:
        """The entry of an inode."""
        ...

    def find(self, directory: int, name: bytes, *, is_guest: bool = False) -> Entry | None:
        """The entry of this name in a directory, or None.

        Where a registry numbers names, a guest (`Plans`, `Numbers`) can add only a limited number: beyond that it
        raises FullError.
        """
        ...

    def entries(self, directory: int, after: int) -> Iterator[tuple[bytes, Entry, int]]:
        """`(name, entry, cookie)` of a directory's entries after the one with the cookie `after`; 0 lists all.

        A cookie is a position in the listing, as `d_off` of readdir(3).
        """
        ...

    def parent(self, directory: int) -> int:
        """The inode number of a directory's parent."""
        ...

    def path(self, inode: int) -> str:
        """A path from the root of the tree for error messages: of the file, or of the shard that it is from."""
        ...

    def is_cacheable(self, directory: int) -> bool:
        """True if a directory's entries never change. Those of a shard never do, as a changed shard gets another id."""
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


@dataclass(frozen=True, slots=True)
class EmptyView:
    """A view that was listed while not all shards were indexed, and turned out not to be there: a `Subtree` that has
    nothing but its `root`.
    """

    root: Entry

    def nonblocking(self, shards: NonblockingShards) -> EmptyView:
        return self

    def entry(self, inode: int) -> Entry:
        if inode != self.root.inode:
            raise ChangedError("this inode is not of this mount")
        return self.root

    def find(self, directory: int, name: bytes, *, is_guest: bool = False) -> Entry | None:
        return None

    def entries(self, directory: int, after: int) -> Iterator[tuple[bytes, Entry, int]]:
        return iter(())

    def parent(self, directory: int) -> int:
        return ROOT

    def path(self, inode: int) -> str:
        return ""

    def is_cacheable(self, directory: int) -> bool:
        return False

    def content(self, inode: int) -> Content:
        raise UsageError("is a directory")

    def attributes(self, inode: int) -> dict[str, str]:
        return {}

    def link(self, inode: int) -> bytes:
        raise UsageError("not a symbolic link")
