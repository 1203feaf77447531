"""The tree of a dataset: look-ups, listings, attributes and contents, all by inode number.

    /                         row 1 of view 0
    /shards/ /segments/ …     a view: its shards in name order
    /shards/<shard>/…         the rows of the view's table in the shard's catalog

Nothing is kept for an inode. What is kept for a shard (its mapped tables, its sources) is made at first touch, and
the oldest of it is dropped when `SHARDS_KEPT` are there. Used by one thread.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from touchfs.dataset import Dataset, Shard
from touchfs.errors import ChangedError, NotFoundError, UsageError
from touchfs.extent import Content, Extent, Memory
from touchfs.shard.catalog import DIRECTORY, NO_SAMPLE, Kind, Table
from touchfs.tree.inode import FIXED_VIEW, ROOT, SHARD_IDS_MAX, pack, unpack
from touchfs.view.catalogs import VIEWS
from touchfs.view.file import presenter

# A mapping holds a descriptor (and vm.max_map_count, 65,530, limits mappings): a quarter of them all is for catalogs.
SHARDS_KEPT = max(min(resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4, 8192), 16)


class Entry(NamedTuple):
    """What `stat` tells of a file or directory."""

    inode: int
    is_directory: bool
    size: int
    mtime_ns: int


class _OpenShard:
    """What is kept of a shard for all its views: its files, and how the contents of each kind are made."""

    __slots__ = ("kinds", "makers", "mtime_ns", "shard", "sources")

    def __init__(self, shard: Shard, kinds: Sequence[Kind]) -> None:
        self.shard = shard
        self.mtime_ns = shard.mtime_ns
        self.kinds = kinds
        files = {name: shard.source(name) for name in {kind.source for kind in kinds if kind.form != "inline"}}
        self.sources = [files.get(kind.source) for kind in kinds]
        self.makers: list[Callable[[Extent], Content] | None] = [
            None if kind.form == "inline" else presenter(kind.form) for kind in kinds
        ]


class _OpenView:
    """One view of one shard: its table, and the inode of its row 0."""

    __slots__ = ("base", "mtime_ns", "of", "table")

    def __init__(self, base: int, of: _OpenShard, table: Table) -> None:
        self.base = base
        self.of = of
        self.mtime_ns = of.mtime_ns
        self.table = table

    def entry(self, row: int) -> Entry:
        table = self.table
        if table.kind[row] == DIRECTORY:
            return Entry(self.base | row, True, 0, self.mtime_ns)
        return Entry(self.base | row, False, table.size[row], self.mtime_ns)

    def content(self, row: int) -> Content:
        kind = self.table.kind[row] - 1
        source, make = self.of.sources[kind], self.of.makers[kind]
        if source is None or make is None:
            return Memory(self.table.inline(row))
        source.open()
        return make(Extent(source, self.table.offset[row], self.table.length[row]))


class Tree:
    """The tree of `dataset`, whose shards have the ids `shard_ids`, in the same order: from 1 on, none given twice."""

    def __init__(self, dataset: Dataset, shard_ids: Sequence[int]) -> None:
        if max(shard_ids, default=0) > SHARD_IDS_MAX:
            raise UsageError(f"a shard has the id {max(shard_ids)}; at most {SHARD_IDS_MAX} fit into an inode number")
        self.dataset = dataset
        self._shard_ids = tuple(shard_ids)
        self._positions = {shard_id: position for position, shard_id in enumerate(shard_ids)}
        self._sorted = sorted(range(len(shard_ids)), key=lambda i: os.fsencode(dataset.shards[i].name))
        self._views = {name.encode(): number for number, name in enumerate(VIEWS, FIXED_VIEW + 1)}
        self._open: dict[int, tuple[_OpenView, ...]] = {}
        self._mtime_ns = max((shard.mtime_ns for shard in dataset.shards), default=0)

    def entry(self, inode: int) -> Entry:
        """Raises ChangedError for an inode of a shard that is not in this dataset any more."""
        if inode == ROOT:
            return Entry(ROOT, True, 0, self._mtime_ns)
        _, shard_id, row = unpack(inode)
        if shard_id:
            return self._view(inode, row).entry(row)
        return Entry(pack(self._view_number(inode), 0, 0), True, 0, self._mtime_ns)

    def find(self, directory: int, name: bytes) -> Entry | None:
        """The entry of this name in a directory, or None."""
        if directory == ROOT:
            view = self._views.get(name)
            return None if view is None else Entry(pack(view, 0, 0), True, 0, self._mtime_ns)
        _, shard_id, row = unpack(directory)
        if shard_id:
            opened = self._view(directory, row)
            found = opened.table.find(row, name) if opened.table.kind[row] == DIRECTORY else None
            return None if found is None else opened.entry(found)
        view, position = self._view_number(directory), self.dataset.by_name.get(name)
        return None if position is None else self._shard_entry(view, position)

    def entries(self, directory: int, after: int = 0) -> Iterator[tuple[bytes, Entry, int]]:
        """`(name, entry, place)` of a directory's entries in name order; `after` is the place of the last one seen."""
        if directory == ROOT:
            for place, (name, view) in enumerate(sorted(self._views.items()), 1):
                if place > after:
                    yield name, Entry(pack(view, 0, 0), True, 0, self._mtime_ns), place
            return
        _, shard_id, row = unpack(directory)
        if shard_id:
            opened = self._view(directory, row)
            table, entry = opened.table, opened.entry
            if table.kind[row] != DIRECTORY:
                raise UsageError("not a directory")
            children = table.children(row)
            for child in children[after:]:
                yield table.name(child), entry(child), child - children.start + 1
            return
        view = self._view_number(directory)
        for place in range(after, len(self._sorted)):
            position = self._sorted[place]
            yield os.fsencode(self.dataset.shards[position].name), self._shard_entry(view, position), place + 1

    def content(self, inode: int) -> Content:
        """The content of a file. Opens and verifies the shard's file behind it. Raises UsageError for a directory."""
        _, _, row = unpack(inode)
        opened = self._view_of_file(inode)
        if opened is None:
            raise UsageError("is a directory")
        return opened.content(row)

    def attributes(self, inode: int) -> dict[str, str]:
        """The extended attributes of a file, without their prefix `user.touchfs.`; none for a directory."""
        _, _, row = unpack(inode)
        opened = self._view_of_file(inode)
        if opened is None:
            return {}
        table = opened.table
        kind = opened.of.kinds[table.kind[row] - 1]
        told = {"shard": opened.of.shard.name, "field": kind.field}
        if table.ordinal[row] != NO_SAMPLE:
            told["key"] = table.key(row)
            told["ordinal"] = str(table.ordinal[row])
            told["offset"] = str(table.offset[row])
            told["size"] = str(table.length[row])
        if kind.note:
            told["reason"] = kind.note
        return told

    def resolve(self, path: str) -> Entry:
        """The entry of a `/`-separated path from the root. Raises NotFoundError."""
        entry, above = self.entry(ROOT), ""
        for component in filter(None, path.split("/")):
            if not entry.is_directory:
                raise NotFoundError(f"{above} is a file", path=path)
            found = self.find(entry.inode, os.fsencode(component))
            if found is None:
                raise NotFoundError(f"there is no {component!r} in {above or '/'}", path=path)
            entry, above = found, f"{above}/{component}"
        return entry

    def _shard_entry(self, view: int, position: int) -> Entry:
        return Entry(pack(view, self._shard_ids[position], 0), True, 0, self.dataset.shards[position].mtime_ns)

    def _view_number(self, inode: int) -> int:
        """The view whose own directory this inode is."""
        view, shard_id, row = unpack(inode)
        if shard_id or row or not FIXED_VIEW < view <= len(VIEWS):
            raise ChangedError("this inode is not of this mount")
        return view

    def _view_of_file(self, inode: int) -> _OpenView | None:
        """The open view that a file's inode lies in, or None for a directory's."""
        _, shard_id, row = unpack(inode)
        if not shard_id:
            self.entry(inode)  # raises for what is no directory either
            return None
        opened = self._view(inode, row)
        return None if opened.table.kind[row] == DIRECTORY else opened

    def _view(self, inode: int, row: int) -> _OpenView:
        """The open view that an inode lies in; its table surely has the row."""
        view, shard_id, _ = unpack(inode)
        views = self._open.get(shard_id) or self._open_shard(shard_id)
        if not FIXED_VIEW < view <= len(views) or row >= views[view - 1].table.rows:
            raise ChangedError("this inode is not of this mount")
        return views[view - 1]

    def _open_shard(self, shard_id: int) -> tuple[_OpenView, ...]:
        position = self._positions.get(shard_id)
        if position is None:
            raise ChangedError("the shard of this inode has changed: look its path up again")
        catalog = self.dataset.catalog(position)
        shard = _OpenShard(self.dataset.shards[position], catalog.kinds)
        views = tuple(
            _OpenView(pack(view, shard_id, 0), shard, catalog.tables[name])
            for view, name in enumerate(VIEWS, FIXED_VIEW + 1)
        )
        if len(self._open) >= SHARDS_KEPT:
            del self._open[next(iter(self._open))]
        self._open[shard_id] = views
        return views
