"""Rows of Arrow files, or of a table in memory, as a storage backend.

A row number is a shard, a batch of it and a row of that, found by two bisections. Files are mapped when they are first
read, and the ones used last stay mapped. A mapping outlives a fork, and is not pickled.
"""

from __future__ import annotations

import json
import operator
import os
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import Any, TypeAlias

import numpy as np

from touchfs.caches.backends.indices import check_index, check_indices, check_shards, shuffled
from touchfs.caches.backends.protocol import Indices
from touchfs.core.errors import FormatError, MissingExtraError, UsageError
from touchfs.core.extras import install_hint
from touchfs.core.names import hex_digest
from touchfs.posix.bounded_cache import BoundedCache
from touchfs.source.data import DATA

try:
    import pyarrow as pa
except ImportError as error:
    raise MissingExtraError(f"Arrow files need pyarrow: {install_hint('arrow')}") from error

from touchfs.caches.backends.arrow.batch_cache import batch_cache
from touchfs.caches.backends.arrow.batches import Batches, TableBatches
from touchfs.caches.backends.arrow.gather import gather, part_of
from touchfs.caches.backends.arrow.ipc_batches import IpcBatches

# Mapped files take address space and no descriptors; 2 mappings each, and a process may have 65,530.
SHARDS_MAPPED = 128
_Latest: TypeAlias = tuple[int, int, Callable[[int], dict[str, Any]]]


class ArrowBackend:
    """The rows of Arrow files at `shard_paths`, or of a `table` in memory.

    `shard_row_counts` has the number of rows of each file; without it all files are opened when rows are counted.
    `schema` is that of all files, by default of the first. A file with other numbers or another schema raises
    FormatError when it is opened, and one that was replaced since the backend was made ChangedError. Rows are as
    stored: `schema` may have other metadata than the files.

    Raises UsageError unless there are either paths or a table, or if the counts are not as many as the paths.
    """

    prefer_batched_take = True

    def __init__(
        self,
        *,
        shard_paths: Sequence[str | os.PathLike[str]] | None = None,
        table: pa.Table | None = None,
        shard_row_counts: Sequence[int] | None = None,
        schema: pa.Schema | None = None,
    ) -> None:
        if (shard_paths is None) == (table is None):
            raise UsageError("an ArrowBackend takes either shard_paths or a table")
        # A path may lead elsewhere in another process, so it is asked each time.
        self._paths = None if shard_paths is None else list(shard_paths)
        if shard_row_counts is not None and len(shard_row_counts) != len(self._paths or ()):
            raise UsageError(f"{len(shard_row_counts)} row counts for {len(self._paths or ())} shards")
        self._table = table if schema is None or table is None else table.cast(schema)
        self._counts = None if shard_row_counts is None else list(shard_row_counts)
        self._schema = schema
        self._fingerprints = [DATA.stat(os.fspath(path)).fingerprint for path in self._paths or ()]
        self._open_nothing()

    def _open_nothing(self) -> None:
        self._cache = batch_cache()
        self._opened: BoundedCache[int, Batches] = BoundedCache(SHARDS_MAPPED, evicted=Batches.forget)
        self._first_rows: list[int] | None = None
        # The shard that was read last: its first row, its end, and the function that reads a row of it.
        self._latest: _Latest = (0, 0, _no_row)

    @property
    def num_rows(self) -> int:
        return self._starts[-1]

    @property
    def num_shards(self) -> int:
        return len(self._paths or ())

    @property
    def is_file_backed(self) -> bool:
        return self._paths is not None

    @property
    def schema(self) -> pa.Schema:
        if self._schema is None:
            if self._table is not None:
                self._schema = self._table.schema
            else:
                self._schema = self._shard(0).schema if self._paths else pa.schema([])
        return self._schema

    @property
    def table(self) -> pa.Table:
        """Return all rows; those of files that are not compressed stay mapped.

        Columns of `binary` become `large_binary`, because computing with over 2 GiB of a `binary` column overflows.
        """
        table = self._table if self._table is not None else self.slice(0, self.num_rows)
        large = [field.with_type(pa.large_binary()) if field.type == pa.binary() else field for field in table.schema]
        return table.cast(pa.schema(large, table.schema.metadata))

    def get_row(self, idx: int) -> dict[str, Any]:
        if type(idx) is not int:  # one of NumPy's would overflow in sums
            idx = operator.index(idx)
        first, end, row = self._latest
        if not first <= idx < end:
            starts = self._starts
            idx = check_index(idx, starts[-1])
            shard = bisect_right(starts, idx) - 1
            first, end, row = self._latest = starts[shard], starts[shard + 1], self._shard(shard).row
        return row(idx - first)

    def take(self, indices: Indices) -> pa.Table:
        """Return the rows at `indices`, in this order. They are one chunk, or a part of a batch as it is stored."""
        chosen = check_indices(indices, self.num_rows)
        if not len(chosen):
            return self.schema.empty_table()
        shards = np.searchsorted(np.array(self._starts), chosen, "right") - 1
        first = int(chosen[0])
        if len(chosen) == 1 or (shards[0] == shards[-1] and (np.diff(chosen) == 1).all()):
            batches = self._between(int(shards[0]), first, first + len(chosen))
            if len(batches) == 1:
                return pa.Table.from_batches(batches, self.schema)
        parts = []
        for shard in np.unique(shards).tolist():
            places = np.flatnonzero(shards == shard)
            parts.append(part_of(self._shard(shard), places, chosen[places] - self._starts[shard]))
        return pa.Table.from_batches([gather(self.schema, parts)])

    def slice(self, start: int, length: int) -> pa.Table:
        """See `StorageBackend.slice`. Rows of files that are not compressed are not copied."""
        if start < 0:
            raise IndexError(f"row {start} of {self.num_rows}")
        starts, stop = self._starts, min(start + length, self.num_rows)
        batches = []
        for shard in range(bisect_right(starts, start) - 1, self.num_shards or 1):
            if starts[shard] >= stop:
                break
            batches += self._between(shard, max(start, starts[shard]), min(stop, starts[shard + 1]))
        return pa.Table.from_batches(batches, self.schema)

    def iter_batches(
        self, shard_indices: list[int] | None = None, shuffle: bool = False, seed: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """See `StorageBackend.iter_batches`. A table in memory is one shard here."""
        order = check_shards(shard_indices, self.num_shards or int(not self.is_file_backed))
        for number in shuffled(order, seed) if shuffle else order:
            yield from self._iter_shard(number)

    def _iter_shard(self, number: int) -> Iterator[pa.RecordBatch]:
        # One that is opened for this is closed at the end of it.
        shard = self._opened.find(number) or self._open(number)
        yield from map(shard.batch, range(len(shard.starts) - 1))

    @property
    def fingerprint(self) -> str:
        """A hash of what the rows are, wherever they are: of files, their names, sizes and row counts."""
        if self._table is not None:
            return hex_digest(b"".join(hex_digest(batch.serialize()).encode() for batch in self._table.to_batches()))
        names = map(os.path.basename, self._paths or ())
        sizes = [each.size for each in self._fingerprints]
        return hex_digest(json.dumps([list(names), sizes, self._starts]).encode())

    @property
    def _starts(self) -> list[int]:
        """The first row of each shard, and then the number of rows."""
        if self._first_rows is None:
            counts = self._counts
            if self._table is not None:
                counts = [self._table.num_rows]
            elif counts is None:
                counts = self._counts = [self._open(shard).rows for shard in range(self.num_shards)]
            self._first_rows = list(accumulate(counts, initial=0))
        return self._first_rows

    def _between(self, shard: int, start: int, stop: int) -> list[pa.RecordBatch]:
        first = self._starts[shard]
        return self._shard(shard).between(start - first, stop - first)

    def _shard(self, number: int) -> Batches:
        return self._opened.get(number, lambda: self._open(number))

    def _open(self, number: int) -> Batches:
        if self._paths is None:
            return TableBatches(self._table, self._cache)
        shard = IpcBatches(self._paths[number], self._fingerprints[number], self._cache, number)
        path = shard.path
        if self._counts is not None and shard.rows != self._counts[number]:
            wanted = self._counts[number]
            raise FormatError(f"it has {shard.rows} rows, and the cache says {wanted}: rebuild the cache", path=path)
        if self._schema is None and number == 0:
            self._schema = shard.schema
        if not shard.schema.equals(self.schema):
            problem = _difference(shard.schema, self.schema)
            raise FormatError(f"its schema is not that of the cache: {problem}", path=path)
        return shard

    def __getstate__(self) -> dict[str, Any]:
        state = {**self.__dict__}
        for name in ("_cache", "_opened", "_first_rows", "_latest"):
            del state[name]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._open_nothing()

    def __repr__(self) -> str:
        where = "memory" if self._paths is None else f"{self.num_shards} shards"
        return f"<ArrowBackend: {where}>"


def _no_row(row: int) -> dict[str, Any]:
    raise IndexError(row)


def _difference(found: pa.Schema, wanted: pa.Schema) -> str:
    for mine, theirs in zip(found, wanted, strict=False):
        if mine != theirs:
            return f"column {mine.name!r} of {mine.type} instead of {theirs.name!r} of {theirs.type}"
    return f"{len(found)} columns instead of {len(wanted)}"
