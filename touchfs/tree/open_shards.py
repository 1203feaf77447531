"""The shards that are open: `SHARDS_KEPT` of them, each opened at its first access.

Opening a shard, or verifying a file of it, may block on a file system, for ever if that does not answer. A thread that
must not block uses `NonblockingShards`.
"""

from __future__ import annotations

import os
import stat
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from touchfs.catalog.table import COLUMNS, DIRECTORY, NO_SAMPLE, Table
from touchfs.core.errors import ChangedError, UsageError
from touchfs.dataset import Dataset, open_shard
from touchfs.dataset.open_shard import SHARDS_KEPT, StoredBytes
from touchfs.dataset.recordings.shard_recordings import known_recording, read_recording
from touchfs.dataset.shard import ListedShard, Shard
from touchfs.posix.bounded_cache import BoundedCache
from touchfs.shard.sample import StoredRecording
from touchfs.tree.entry import Entry
from touchfs.tree.inode import SHARD_IDS_MAX, pack

T = TypeVar("T")


class TreeShard(open_shard.OpenShard):
    """An open shard of a tree: it has an id, and its files have extended attributes."""

    __slots__ = ("mtime_ns", "position", "shard_id")

    def __init__(self, dataset: Dataset, shard: Shard, position: int, shard_id: int) -> None:
        super().__init__(dataset, shard)
        self.mtime_ns = self.shard.mtime_ns
        self.position = position
        self.shard_id = shard_id

    def label_values(self) -> NDArray[np.int64]:
        """The class label of each row of a table, −1 where it has none. Reads the column."""
        labels = self.labels
        if labels is None:
            return np.zeros(0, np.int64)
        from touchfs.tables.rows.open_table import open_table

        return open_table(self.shard.source(labels.source), self.limits).integers(labels.column)

    def attributes(self, table: Table, row: int) -> dict[str, str]:
        """The extended attributes of a row, without their prefix `user.touchfs.`; empty for a directory."""
        if table.kind[row] == DIRECTORY:
            return {}
        kind = self.kind_of(table, row)
        attributes = {"shard": self.shard.name, "field": kind.field}
        if table.ordinal[row] != NO_SAMPLE:
            attributes["key"] = table.key(row)
            attributes["ordinal"] = str(table.ordinal[row])
            if table is self.tables.get("segments"):
                attributes["segment"] = str(table.part[row])
            attributes["offset"] = str(table.offset[row])
            attributes["size"] = str(table.length[row])
        if kind.note:
            attributes["reason"] = kind.note
        return attributes


class WouldBlockError(Exception):
    """The call would block, and the caller must not."""


class OpenShards:
    """The open shards of a dataset. `shard_ids` are the ids of its shards, in the same order: from 1 on, all different.

    Safe for any number of threads.
    """

    def __init__(self, dataset: Dataset, shard_ids: Sequence[int]) -> None:
        if max(shard_ids, default=0) > SHARD_IDS_MAX:
            raise UsageError(f"a shard has the id {max(shard_ids)}; at most {SHARD_IDS_MAX} fit into an inode number")
        self.dataset = dataset
        self.mtime_ns = max((shard.mtime_ns for shard in dataset.listed), default=0)
        self._shard_ids = tuple(shard_ids)
        self._positions = {shard_id: position for position, shard_id in enumerate(shard_ids)}
        self._sorted = sorted(shard_ids)
        self._open: BoundedCache[int, TreeShard] = BoundedCache(SHARDS_KEPT)
        self._headers: BoundedCache[int, TreeShard] = BoundedCache(SHARDS_KEPT)

    def get(self, shard_id: int) -> TreeShard:
        """The shard with this id, opened if necessary. Raises ChangedError if the dataset no longer has it."""
        return self._open.find(shard_id) or self._open_shard(shard_id)

    def headers(self, shard_id: int) -> TreeShard:
        """The shard with this id for `shards/`: with all of its files, but maybe without segments. Raises as `get`."""
        return self._open.find(shard_id) or self._headers.find(shard_id) or self._open_headers(shard_id)

    def ids(self, first: int) -> list[int]:
        """The ids from `first` on, ascending: a listing in this order can continue after a reload."""
        return self._sorted[bisect_left(self._sorted, first) :]

    def listed(self, shard_id: int) -> ListedShard:
        """The shard with this id as it is known without indexing it. Raises KeyError."""
        return self.dataset.listed[self._positions[shard_id]]

    def has_index(self, shard_id: int) -> bool:
        """Whether the shard with this id is indexed by now. Raises KeyError."""
        return self.dataset.has_index(self._positions[shard_id])

    def has_headers(self, shard_id: int) -> bool:
        """Whether `headers` reads nothing of the shard with this id. Raises KeyError."""
        return self.dataset.has_headers(self._positions[shard_id])

    def directories(self) -> list[str]:
        """The names of the directories of splits in `shards/`; empty if there are not several."""
        return sorted({shard.directory.rstrip("/") for shard in self.dataset.listed} - {""})

    @property
    def has_tables(self) -> bool:
        return any(map(self.is_shown_table, self.ids(0)))

    def is_shown_table(self, shard_id: int) -> bool:
        """True if a shard is a table and can be served."""
        shard = self.dataset.shard(self._positions[shard_id])
        if shard.may_have_videos:
            return COLUMNS in self.get(shard_id).tables
        return shard.samples > 0 and shard.known.is_table

    def at(self, position: int) -> TreeShard:
        return self.get(self._shard_ids[position])

    def _position(self, shard_id: int) -> int:
        position = self._positions.get(shard_id)
        if position is None:
            raise ChangedError("the shard of this inode has changed: look its path up again")
        return position

    def _open_shard(self, shard_id: int) -> TreeShard:
        dataset, position = self.dataset, self._position(shard_id)
        return self._open.get(shard_id, lambda: TreeShard(dataset, dataset.shard(position), position, shard_id))

    def _open_headers(self, shard_id: int) -> TreeShard:
        dataset, position = self.dataset, self._position(shard_id)
        if dataset.has_index(position):
            return self._open_shard(shard_id)
        try:
            return self._headers.get(
                shard_id, lambda: TreeShard(dataset, dataset.headers(position), position, shard_id)
            )
        except ChangedError:  # it was indexed meanwhile
            if not dataset.has_index(position):
                raise
            return self._open_shard(shard_id)

    def verify(self, shard: TreeShard, table: Table, row: int) -> None:
        """Open and verify the file behind a row, unless that happened within the last second."""
        if not shard.is_verified(table, row):
            shard.verify(table, row)

    def recording(self, shard: TreeShard, table: Table, row: int) -> StoredRecording:
        """The recording at a row, which may have to be read to know what it is. Raises as `read_recording`."""
        return read_recording(shard, table, row)

    def measure(self, shard: TreeShard, stored: StoredBytes) -> int:
        """The size of a file that depends on the recording behind it, which is read unless this process knows it.

        Raises FormatError if it cannot be read, and the errors of sources.
        """
        size = shard.known_size(stored)
        return shard.present(stored).size if size is None else size

    def known_or_found(self, known: T | None, find: Callable[[], T]) -> T:
        """The value that is known, or the one that `find` returns. `find` may block."""
        return find() if known is None else known

    def entry(self, view: int, shard_id: int) -> Entry:
        """The entry of a shard's directory in a view, which is row 0. Does not open the catalog."""
        mtime_ns = self.dataset.listed[self._position(shard_id)].mtime_ns
        return Entry(pack(view, shard_id, 0), stat.S_IFDIR, 0, mtime_ns)

    def find(self, view: int, name: bytes) -> Entry | None:
        """The entry of a shard's directory in a view, by the shard's name; None if there is no such shard."""
        position = self.dataset.by_name.get(name)
        return None if position is None else self.entry(view, self._shard_ids[position])

    def path(self, name: str, shard_id: int) -> str:
        """The path in `shards` of the shard that an inode below `name` leads to; of `name` itself, `name`."""
        return self.dataset.listed[self._position(shard_id)].path_in("shards") if shard_id else name

    def entries(self, view: int, after: int) -> Iterator[tuple[bytes, Entry, int]]:
        """The directories of all shards in a view, as `Subtree.entries`. The cookie of a directory is its shard id."""
        for shard_id in self.ids(after + 1):
            name = self.listed(shard_id).name
            yield os.fsencode(name), self.entry(view, shard_id), shard_id


class NonblockingShards(OpenShards):
    """The same shards for a thread that must not block: a call that would block raises WouldBlockError."""

    def __init__(self, shards: OpenShards) -> None:
        vars(self).update(vars(shards))

    def _open_shard(self, shard_id: int) -> TreeShard:
        if shard_id in self._positions:
            raise WouldBlockError
        return super()._open_shard(shard_id)

    def _open_headers(self, shard_id: int) -> TreeShard:
        return self._open_shard(shard_id)

    def verify(self, shard: TreeShard, table: Table, row: int) -> None:
        if not shard.is_verified(table, row):
            raise WouldBlockError

    def recording(self, shard: TreeShard, table: Table, row: int) -> StoredRecording:
        recording = known_recording(shard, table, row)
        if recording is None:
            raise WouldBlockError
        return recording

    def measure(self, shard: TreeShard, stored: StoredBytes) -> int:
        size = shard.known_size(stored)
        if size is None:
            raise WouldBlockError
        return size

    def known_or_found(self, known: T | None, find: Callable[[], T]) -> T:
        if known is None:
            raise WouldBlockError
        return known
