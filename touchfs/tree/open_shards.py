"""What is kept of shards that somebody looks at: mapped tables and sources, made at first touch.

A mapping holds a descriptor (and vm.max_map_count, 65,530, limits mappings), so the shard that was opened first is
dropped when `SHARDS_KEPT` are there.
"""

from __future__ import annotations

import os
import resource
import stat
from bisect import bisect_right
from collections.abc import Iterator, Sequence

from touchfs.dataset import Dataset, Shard
from touchfs.errors import ChangedError, UsageError
from touchfs.extent import Content, Extent, Memory
from touchfs.shard.catalog import DIRECTORY, NO_SAMPLE, Kind, Table
from touchfs.tree.entry import Entry
from touchfs.tree.inode import SHARD_IDS_MAX, pack
from touchfs.view.form import Presenter, presenter

# A quarter of all descriptors is for catalogs.
SHARDS_KEPT = max(min(resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4, 8192), 16)


class OpenShard:
    """A shard's tables by view, its files, and how the contents of each kind of file are made."""

    __slots__ = ("_makers", "_sources", "kinds", "mtime_ns", "position", "shard", "shard_id", "tables")

    def __init__(self, shard: Shard, position: int, shard_id: int, kinds: Sequence[Kind], tables: dict[str, Table]):
        self.shard = shard
        self.position = position
        self.shard_id = shard_id
        self.mtime_ns = shard.mtime_ns
        self.kinds = kinds
        self.tables = tables
        files = {name: shard.source(name) for name in {kind.source for kind in kinds if kind.form != "inline"}}
        self._sources = [files.get(kind.source) for kind in kinds]
        self._makers: list[Presenter | None] = [
            None if kind.form == "inline" else presenter(kind.form) for kind in kinds
        ]

    def content(self, table: Table, row: int) -> Content:
        """The content of a file of one of the tables."""
        if table.kind[row] == DIRECTORY:
            raise UsageError("is a directory")
        kind = table.kind[row] - 1
        if self._makers[kind] is None:
            return Memory(table.inline(row))
        return self.present(kind, table.offset[row], table.length[row], table.inline(row))

    def present(self, kind: int, offset: int, length: int, detail: bytes) -> Content:
        """A range of the source of a kind, in the form of that kind. For all but `inline`."""
        source, make = self._sources[kind], self._makers[kind]
        if source is None or make is None:
            raise UsageError("is no range of a file")
        source.open()
        return make(Extent(source, offset, length), detail)

    def attributes(self, table: Table, row: int) -> dict[str, str]:
        if table.kind[row] == DIRECTORY:
            return {}
        kind = self.kinds[table.kind[row] - 1]
        told = {"shard": self.shard.name, "field": kind.field}
        if table.ordinal[row] != NO_SAMPLE:
            told["key"] = table.key(row)
            told["ordinal"] = str(table.ordinal[row])
            told["offset"] = str(table.offset[row])
            told["size"] = str(table.length[row])
        if kind.note:
            told["reason"] = kind.note
        return told


class OpenShards:
    """The shards of a dataset, which have the ids `shard_ids`, in the same order: from 1 on, none given twice."""

    def __init__(self, dataset: Dataset, shard_ids: Sequence[int]) -> None:
        if max(shard_ids, default=0) > SHARD_IDS_MAX:
            raise UsageError(f"a shard has the id {max(shard_ids)}; at most {SHARD_IDS_MAX} fit into an inode number")
        self.dataset = dataset
        self.mtime_ns = max((shard.mtime_ns for shard in dataset.shards), default=0)
        self._shard_ids = tuple(shard_ids)
        self._positions = {shard_id: position for position, shard_id in enumerate(shard_ids)}
        self._sorted = sorted(shard_ids)
        self._open: dict[int, OpenShard] = {}

    def get(self, shard_id: int) -> OpenShard:
        return self._open.get(shard_id) or self._open_shard(shard_id)

    def at(self, position: int) -> OpenShard:
        return self.get(self._shard_ids[position])

    def _open_shard(self, shard_id: int) -> OpenShard:
        position = self._positions.get(shard_id)
        if position is None:
            raise ChangedError("the shard of this inode has changed: look its path up again")
        catalog = self.dataset.catalog(position)
        opened = OpenShard(self.dataset.shards[position], position, shard_id, catalog.kinds, catalog.tables)
        if len(self._open) >= SHARDS_KEPT:
            del self._open[next(iter(self._open))]
        self._open[shard_id] = opened
        return opened

    def entry(self, view: int, shard_id: int) -> Entry:
        """A view's directory of a shard, which is row 0. No catalog is opened for it."""
        position = self._positions.get(shard_id)
        if position is None:
            raise ChangedError("the shard of this inode has changed: look its path up again")
        return Entry(pack(view, shard_id, 0), stat.S_IFDIR, 0, self.dataset.shards[position].mtime_ns)

    def find(self, view: int, name: bytes) -> Entry | None:
        """A view's directory of the shard of this name."""
        position = self.dataset.by_name.get(name)
        return None if position is None else self.entry(view, self._shard_ids[position])

    def entries(self, view: int, after: int) -> Iterator[tuple[bytes, Entry, int]]:
        """A view's directories of all shards, each at the place that is its id: a listing may go on after a reload."""
        for shard_id in self._sorted[bisect_right(self._sorted, after) :]:
            name = self.dataset.shards[self._positions[shard_id]].name
            yield os.fsencode(name), self.entry(view, shard_id), shard_id
