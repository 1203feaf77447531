"""`shards/` and `segments/`: a directory for each shard, with the rows of the view's table in its catalog. In `shards/`
they are in directories of their splits, if the dataset has several.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from touchfs.catalog.columns import take
from touchfs.catalog.signposts import DIRECTORIES_KEPT, Signposts, signposts
from touchfs.catalog.table import DIRECTORY, Table
from touchfs.core.errors import ChangedError, TouchfsError, UsageError
from touchfs.core.extent import Content
from touchfs.core.names import hash_of
from touchfs.dataset.open_shard import stored_at
from touchfs.tree.entry import Entry, ListedFiles
from touchfs.tree.inode import ROOT, ROW_BITS, ROW_MASK, SHARD_IDS_MAX, pack
from touchfs.tree.open_shards import NonblockingShards, OpenShards, TreeShard
from touchfs.tree.videos.segment_frames import SegmentFrames

# Neither signposts nor columns pay in a directory with fewer children.
SIGNPOSTS_FROM, COLUMNS_FROM = 64, 32


class _Directory(NamedTuple):
    """A directory whose entries are looked up: its row, the rows of its children, and signposts if it is large."""

    shard: TreeShard
    table: Table
    row: int
    children: range
    posts: Signposts | None


class CatalogView:
    """The directory of a view, a `Subtree`: `shards` or `segments`. Its inodes have the view `number`.

    `frames` has the directories that segments of videos have besides, which are in no catalog.
    """

    def __init__(self, shards: OpenShards, name: str, number: int, frames: SegmentFrames | None = None) -> None:
        self._shards = shards
        self._name = name
        self._number = number
        self._frames = frames
        self._top = pack(number, 0, 0)
        # A number of 32 bits from the name is the same after a reload with more splits.
        names = shards.directories() if name == "shards" else ()
        self._splits = {pack(number, 0, hash_of(os.fsencode(each)) % ROW_MASK + 1): each for each in sorted(names)}
        self._keep_directories()

    def _keep_directories(self) -> None:
        self._directory = lru_cache(DIRECTORIES_KEPT)(self._find_directory)

    def nonblocking(self, shards: NonblockingShards) -> CatalogView:
        frames = None if self._frames is None else self._frames.nonblocking(shards)
        return type(self)(shards, self._name, self._number, frames)

    def _shard(self, shard_id: int) -> TreeShard:
        """The open shard with an id. Of those in `shards/`, what is in files need not be known."""
        return self._shards.headers(shard_id) if self._name == "shards" else self._shards.get(shard_id)

    def _row(self, inode: int) -> tuple[TreeShard, Table, int]:
        shard, row = self._shard(inode >> ROW_BITS & SHARD_IDS_MAX), inode & ROW_MASK
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
        return self._measured(*self._row(inode)) if not self._has_shards(inode) else self._directory_of_shards(inode)

    def _has_shards(self, inode: int) -> bool:
        return inode == self._top or inode in self._splits

    def _directory_of_shards(self, inode: int) -> Entry:
        return Entry(inode, stat.S_IFDIR, 0, self._shards.mtime_ns)

    def _above(self, shard_id: int) -> int:
        """The directory that the directory of a shard is in."""
        split = self._shards.listed(shard_id).directory.rstrip("/")
        return next((inode for inode, each in self._splits.items() if each == split), self._top)

    def find(self, directory: int, name: bytes, *, is_guest: bool = False) -> Entry | None:
        if self._has_shards(directory):
            return self._find_shard(directory, name)
        place = self._directory(directory)
        if place is None:
            return None
        shard, table, row, children, posts = place
        found = table.search(children if posts is None else posts.near(children, name), name)
        if found is not None:
            size = table.size[found]
            if size and table.kind[found] != DIRECTORY:  # as in `_entry`, without its calls
                return Entry(directory - row + found, stat.S_IFREG, size, shard.mtime_ns)
            return self._measured(shard, table, found)
        return None if self._frames is None else self._frames.find_segment(shard, table, row, name)

    def _find_shard(self, directory: int, name: bytes) -> Entry | None:
        for inode, split in self._splits.items() if directory == self._top else ():
            if os.fsencode(split) == name:
                return self._directory_of_shards(inode)
        found = self._shards.find(self._number, name)
        is_here = found is not None and self._above(found.inode >> ROW_BITS & SHARD_IDS_MAX) == directory
        return found if is_here else None

    def _find_directory(self, inode: int) -> _Directory | None:
        """The shard, table and rows in which names of a directory are searched; None if the inode is a file."""
        shard, table, row = self._row(inode)
        if table.kind[row] != DIRECTORY:
            return None
        children = table.children(row)
        posts = signposts(table, row) if len(children) >= SIGNPOSTS_FROM else None
        return _Directory(shard, table, row, children, posts)

    def entries(self, directory: int, after: int) -> Iterator[tuple[bytes, Entry, int]]:
        if self._has_shards(directory):
            yield from self._shards_in(directory, after)
            return
        shard, table, row = self._row(directory)
        if table.kind[row] != DIRECTORY:
            raise UsageError("not a directory")
        children = table.children(row)
        for child in children[after:]:
            yield table.name(child), self._entry(shard, table, child), child - children.start + 1
        if self._frames is not None:
            yield from self._frames.segments(shard, table, row, after)

    def files(self, directory: int, after: int, count: int) -> ListedFiles | None:
        """The next `count` of `entries` as columns; None where these are few, or some are no files of known size."""
        if self._has_shards(directory):
            return None
        shard, table, row = self._row(directory)
        rows = table.children(row)[after : after + count]
        if len(rows) < COLUMNS_FROM:
            return None
        places = np.arange(rows.start, rows.stop)
        sizes = take(table.size, places)
        is_other = (sizes <= 0) | (take(table.kind, places) == DIRECTORY)
        rows = rows[: int(is_other.argmax()) if is_other.any() else len(rows)]
        if len(rows) < COLUMNS_FROM:
            return None
        inode = pack(self._number, shard.shard_id, rows.start)
        return ListedFiles(inode, table.names_of(rows), sizes[: len(rows)], shard.mtime_ns)

    def _shards_in(self, directory: int, after: int) -> Iterator[tuple[bytes, Entry, int]]:
        """The directories of shards in the one of the view or of a split; in the former those of splits follow."""
        for name, entry, shard_id in self._shards.entries(self._number, after):
            if self._above(shard_id) == directory:
                yield name, entry, shard_id
        for cookie, (inode, split) in enumerate(self._splits.items() if directory == self._top else (), 1):
            if SHARD_IDS_MAX + cookie > after:
                yield os.fsencode(split), self._directory_of_shards(inode), SHARD_IDS_MAX + cookie

    def parent(self, directory: int) -> int:
        if self._has_shards(directory):
            return ROOT if directory == self._top else self._top
        shard, table, row = self._row(directory)
        return pack(self._number, shard.shard_id, table.parent[row]) if row else self._above(shard.shard_id)

    def path(self, inode: int) -> str:
        if self._has_shards(inode):
            return self._name if inode == self._top else f"{self._name}/{self._splits[inode]}"
        shard, table, row = self._row(inode)
        return f"{shard.shard.path_in(self._name)}/{os.fsdecode(table.path(row))}".rstrip("/")

    def is_cacheable(self, directory: int) -> bool:
        return True

    def content(self, inode: int) -> Content:
        if self._has_shards(inode):
            raise UsageError("is a directory")
        shard, table, row = self._row(inode)
        self._shards.verify(shard, table, row)
        if not table.size[row] and self._entry(shard, table, row).size is None:
            self._shards.measure(shard, stored_at(table, row))  # the reason why it cannot be read is that of the open
        return shard.content(table, row)

    def attributes(self, inode: int) -> dict[str, str]:
        if self._has_shards(inode):
            return {}
        shard, table, row = self._row(inode)
        return shard.attributes(table, row)

    def link(self, inode: int) -> bytes:
        self.entry(inode)
        raise UsageError("not a symbolic link")
