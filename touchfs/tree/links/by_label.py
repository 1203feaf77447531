"""`by-label/<label>/<shard>/`: links to the rows of tables by their class label.

The label is the first column of class labels (`Facts.labels`). In a flat table each file of a row has a link. In a
nested one each row has a link to its directory. Slashes of keys are quoted. The labels of a shard are read when
somebody looks into its directory of a label. The number of the directory of a label is a hash of its name, so a reload
keeps it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from touchfs.catalog.catalog import Labels
from touchfs.catalog.table import DIRECTORY, Table
from touchfs.core.errors import ChangedError, UsageError
from touchfs.core.extent import Content
from touchfs.core.names import NAME_MAX, hash_of, quote, shorten
from touchfs.posix.bounded_cache import BoundedCache
from touchfs.tree.entry import Entry
from touchfs.tree.inode import ROOT, pack, unpack
from touchfs.tree.open_shards import NonblockingShards, OpenShards, TreeShard, WouldBlockError

NAME = "by-label"
# Above all rows of files: the directory of a label in a shard.
_LABEL_BIT = 1 << 31
_SHARDS_KEPT = 64


class _LabelledRows(NamedTuple):
    """The ordinals of a shard's rows sorted by label, and the labels in this order."""

    ordinals: NDArray[np.int64]
    labels: NDArray[np.int64]

    def of(self, label: int) -> NDArray[np.int64]:
        first, last = np.searchsorted(self.labels, [label, label + 1])
        return self.ordinals[first:last]


class _Known:
    """The data that were read: the names of all labels by number, and the rows of the last shards."""

    def __init__(self) -> None:
        self.names: dict[int, bytes] | None = None
        self.rows: BoundedCache[int, _LabelledRows] = BoundedCache(_SHARDS_KEPT)


class ByLabel:
    """The directory `by-label`, a `Subtree`. Its inodes have the view `number`."""

    def __init__(self, shards: OpenShards, number: int, known: _Known | None = None) -> None:
        self._shards = shards
        self._number = number
        self._root = pack(number, 0, 0)
        self._known = known or _Known()

    def nonblocking(self, shards: NonblockingShards) -> ByLabel:
        return ByLabel(shards, self._number, self._known)

    def _tables(self) -> list[int]:
        return [shard_id for shard_id in self._shards.ids(0) if self._shards.is_shown_table(shard_id)]

    def _names(self) -> dict[int, bytes]:
        if self._known.names is None:
            names: dict[int, bytes] = {}
            for shard_id in self._tables():
                labels = self._shards.get(shard_id).labels
                names.update((_number(name), name) for name in _file_names(labels))
            self._known.names = names
        return self._known.names

    def _rows(self, shard: TreeShard) -> _LabelledRows:
        rows = self._known.rows.find(shard.shard_id)
        if rows is None:
            if isinstance(self._shards, NonblockingShards):
                raise WouldBlockError
            rows = self._known.rows.get(shard.shard_id, lambda: _labelled_rows(shard))
        return rows

    def _ordinals(self, shard: TreeShard, number: int) -> NDArray[np.int64]:
        """The ordinals of a shard's rows with a label, ascending; none if the shard does not have it."""
        names = _file_names(shard.labels)
        for value, name in enumerate(names):
            if _number(name) == number:
                return self._rows(shard).of(value)
        return np.zeros(0, np.int64)

    def entry(self, inode: int) -> Entry:
        _, shard_id, row = unpack(inode)
        if not shard_id:
            if row and row not in self._names():
                raise ChangedError("no sample has this label any more")
            return Entry(inode, stat.S_IFDIR, 0, self._shards.mtime_ns)
        shard = self._shards.get(shard_id)
        if row & _LABEL_BIT:
            return Entry(inode, stat.S_IFDIR, 0, shard.mtime_ns)
        table = shard.tables["shards"]
        if row >= table.rows:
            raise ChangedError("this inode is not of this mount")
        return self._link_entry(shard, row)

    def _link_entry(self, shard: TreeShard, row: int) -> Entry:
        target = _target(shard, row)
        return Entry(pack(self._number, shard.shard_id, row), stat.S_IFLNK, len(target), shard.mtime_ns)

    def find(self, directory: int, name: bytes, *, is_guest: bool = False) -> Entry | None:
        _, shard_id, row = unpack(directory)
        if directory == self._root:
            number = _number(name)
            return self.entry(pack(self._number, 0, number)) if self._names().get(number) == name else None
        if not shard_id:
            found = self._shards.find(self._number, name)
            if found is None or not self._shards.is_shown_table(unpack(found.inode)[1]):
                return None
            return self._directory(unpack(found.inode)[1], row)
        shard = self._shards.get(shard_id)
        table, place = shard.tables["shards"], 0
        for component in name.split(b"%2F"):
            child = table.find(place, component) if table.kind[place] == DIRECTORY else None
            if child is None:
                return None
            place = child
        ordinals = self._ordinals(shard, row & ~_LABEL_BIT)
        if place not in _links(table, _ordinal(table, place)):
            return None
        at = int(np.searchsorted(ordinals, _ordinal(table, place)))
        has_label = at < len(ordinals) and ordinals[at] == _ordinal(table, place)
        return self._link_entry(shard, place) if has_label else None

    def _directory(self, shard_id: int, number: int) -> Entry:
        mtime_ns = self._shards.listed(shard_id).mtime_ns
        return Entry(pack(self._number, shard_id, _LABEL_BIT | number), stat.S_IFDIR, 0, mtime_ns)

    def entries(self, directory: int, after: int) -> Iterator[tuple[bytes, Entry, int]]:
        _, shard_id, row = unpack(directory)
        if directory == self._root:
            for cookie, (number, name) in enumerate(sorted(self._names().items(), key=lambda item: item[1]), 1):
                if cookie > after:
                    yield name, self.entry(pack(self._number, 0, number)), cookie
        elif not shard_id:
            for each in self._tables():
                if each > after:
                    yield os.fsencode(self._shards.listed(each).name), self._directory(each, row), each
        else:
            shard = self._shards.get(shard_id)
            table = shard.tables["shards"]
            ordinals = self._ordinals(shard, row & ~_LABEL_BIT)
            # A cookie is the place of the row, and the number of its file.
            first, skipped = divmod(after, 1 << 16)
            for place, ordinal in enumerate(ordinals[first:].tolist(), first):
                for number, each in enumerate(_links(table, ordinal), 1):
                    if place > first or number > skipped:
                        name = table.path(each).replace(b"/", b"%2F")
                        if len(name) <= NAME_MAX:
                            yield name, self._link_entry(shard, each), place << 16 | number

    def parent(self, directory: int) -> int:
        _, shard_id, row = unpack(directory)
        if directory == self._root:
            return ROOT
        return pack(self._number, 0, row & ~_LABEL_BIT) if shard_id else self._root

    def path(self, inode: int) -> str:
        return self._shards.path(NAME, unpack(inode)[1])

    def is_cacheable(self, directory: int) -> bool:
        return False  # a new shard can have other labels

    def content(self, inode: int) -> Content:
        self.entry(inode)
        raise UsageError("not a file")

    def attributes(self, inode: int) -> dict[str, str]:
        self.entry(inode)
        return {}

    def link(self, inode: int) -> bytes:
        _, shard_id, row = unpack(inode)
        if not shard_id or row & _LABEL_BIT:
            raise UsageError("not a symbolic link")
        return _target(self._shards.get(shard_id), row)


def _labelled_rows(shard: TreeShard) -> _LabelledRows:
    values = shard.label_values()
    order = np.argsort(values, kind="stable")
    return _LabelledRows(order, values[order])


def _number(name: bytes) -> int:
    """The number of a label's directory, never 0."""
    return hash_of(name) % (_LABEL_BIT - 1) + 1


def _file_names(labels: Labels | None) -> list[bytes]:
    """The names of labels as those of directories, by their values. Of equal names only the first is looked up."""
    return [] if labels is None else [shorten(quote(name), b"") for name in labels.names]


def _links(table: Table, ordinal: int) -> list[int]:
    """The rows that a sample has links to: its files, or the directory of its files in a nested table."""
    files = table.files(ordinal)
    is_nested = any(table.suffix[row] > len(table.name(row)) for row in files)
    return sorted({table.parent[row] for row in files}) if is_nested else files


def _ordinal(table: Table, row: int) -> int:
    """The ordinal of the sample of a file, or of the first file in a directory."""
    while table.kind[row] == DIRECTORY and len(children := table.children(row)):
        row = children.start
    return table.ordinal[row]


def _target(shard: TreeShard, row: int) -> bytes:
    return b"../../../%b/" % os.fsencode(shard.shard.path_in("shards")) + shard.tables["shards"].path(row)
