"""`shards/` and `segments/`: a directory for each shard, with the rows of the view's table in its catalog."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress

from touchfs.catalog.table import DIRECTORY, Table
from touchfs.dataset.open_shard import stored_at
from touchfs.errors import ChangedError, TouchfsError, UsageError
from touchfs.extent import Content
from touchfs.tree.entry import Entry
from touchfs.tree.inode import ROOT, pack, unpack
from touchfs.tree.open_shards import NonblockingShards, OpenShards, TreeShard
from touchfs.tree.videos.segment_frames import SegmentFrames


class CatalogView:
    """The directory of a view, a `Subtree`: `shards` or `segments`. Its inodes have the view `number`.

    `frames` has the directories that segments of videos have besides, which are in no catalog.
    """

    def __init__(self, shards: OpenShards, name: str, number: int, frames: SegmentFrames | None = None) -> None:
        self._shards = shards
        self._name = name
        self._number = number
        self._frames = frames

    def nonblocking(self, shards: NonblockingShards) -> CatalogView:
        frames = None if self._frames is None else self._frames.nonblocking(shards)
        return type(self)(shards, self._name, self._number, frames)

    def _row(self, inode: int) -> tuple[TreeShard, Table, int]:
        """The shard, table and row of an inode. Raises ChangedError if there is no such row."""
        _, shard_id, row = unpack(inode)
        shard = self._shards.get(shard_id)
        table = shard.tables[self._name]
        if row >= table.rows:
            raise ChangedError("this inode is not of this mount")
        return shard, table, row

    def _entry(self, shard: TreeShard, table: Table, row: int) -> Entry:
        """The entry of a row as the catalog has it: the size is None if a recording must be read to know it."""
        inode = pack(self._number, shard.shard_id, row)
        if table.kind[row] == DIRECTORY:
            return Entry(inode, stat.S_IFDIR, 0, shard.mtime_ns)
        size: int | None = table.size[row]
        if not size:  # nearly no file is empty
            size = shard.size(stored_at(table, row))
        return Entry(inode, stat.S_IFREG, size, shard.mtime_ns)

    def _measured(self, shard: TreeShard, table: Table, row: int) -> Entry:
        """The entry of a row. Reads a recording if the size cannot be known otherwise."""
        entry = self._entry(shard, table, row)
        if entry.size is None:
            with suppress(TouchfsError):
                return entry._replace(size=self._shards.measure(shard, stored_at(table, row)))
        return entry

    def entry(self, inode: int) -> Entry:
        return self._measured(*self._row(inode)) if inode != pack(self._number, 0, 0) else self._root()

    def _root(self) -> Entry:
        return Entry(pack(self._number, 0, 0), stat.S_IFDIR, 0, self._shards.mtime_ns)

    def find(self, directory: int, name: bytes, *, is_guest: bool = False) -> Entry | None:
        if directory == pack(self._number, 0, 0):
            return self._shards.find(self._number, name)
        shard, table, row = self._row(directory)
        if table.kind[row] != DIRECTORY:
            return None
        found = table.find(row, name)
        if found is not None:
            return self._measured(shard, table, found)
        return None if self._frames is None else self._frames.find_segment(shard, table, row, name)

    def entries(self, directory: int, after: int) -> Iterator[tuple[bytes, Entry, int]]:
        if directory == pack(self._number, 0, 0):
            yield from self._shards.entries(self._number, after)
            return
        shard, table, row = self._row(directory)
        if table.kind[row] != DIRECTORY:
            raise UsageError("not a directory")
        children = table.children(row)
        for child in children[after:]:
            yield table.name(child), self._entry(shard, table, child), child - children.start + 1
        if self._frames is not None:
            yield from self._frames.segments(shard, table, row, after)

    def parent(self, directory: int) -> int:
        root = pack(self._number, 0, 0)
        if directory == root:
            return ROOT
        shard, table, row = self._row(directory)
        return pack(self._number, shard.shard_id, table.parent[row]) if row else root

    def path(self, inode: int) -> str:
        if inode == pack(self._number, 0, 0):
            return self._name
        shard, table, row = self._row(inode)
        return f"{self._name}/{shard.shard.name}/{os.fsdecode(table.path(row))}".rstrip("/")

    def is_cacheable(self, directory: int) -> bool:
        return True

    def content(self, inode: int) -> Content:
        if inode == pack(self._number, 0, 0):
            raise UsageError("is a directory")
        shard, table, row = self._row(inode)
        self._shards.verify(shard, table, row)
        if not table.size[row] and self._entry(shard, table, row).size is None:
            self._shards.measure(shard, stored_at(table, row))  # the reason why it cannot be read is that of the open
        return shard.content(table, row)

    def attributes(self, inode: int) -> dict[str, str]:
        if inode == pack(self._number, 0, 0):
            return {}
        shard, table, row = self._row(inode)
        return shard.attributes(table, row)

    def link(self, inode: int) -> bytes:
        self.entry(inode)
        raise UsageError("not a symbolic link")
