"""The rows of a Lance dataset: a cache of the layout `lance-rows`, or any other one.

Nothing of Lance runs before rows are read. The counts come from the manifest, so a backend can be made before a
DataLoader forks. The version that was the latest then stays the one that is read, also in copies that are pickled.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from touchfs.caches.backends.indices import check_index, check_indices, check_shards, shuffled
from touchfs.caches.backends.protocol import Indices
from touchfs.core.errors import map_os_errors
from touchfs.core.location import Location
from touchfs.posix.published import HeldDirectory
from touchfs.tables.lance.blobs import binary_schema, blob_columns, check_blobs, read_blobs
from touchfs.tables.lance.dataset import LanceTable
from touchfs.tables.lance.errors import lance_errors

if TYPE_CHECKING:
    import pyarrow

    from touchfs.caches.backends.protocol import StorageBackend


class LanceBackend:
    """Rows of the Lance dataset at `uri`, a directory or a URL. Its shards are the fragments of the dataset.

    `batch_readahead` is the number of batches that Lance reads ahead in `iter_batches`. Blob columns have their values.
    Raises NotFoundError if there is no dataset, and FormatError for one that is damaged.
    """

    prefer_batched_take = True
    is_file_backed = True

    def __init__(self, *, uri: str | Path, batch_readahead: int = 8) -> None:
        place = os.fspath(uri)
        with map_os_errors(place):
            self._table = LanceTable(place if Location.of(place).is_url else HeldDirectory(place))
        self._batch_readahead = int(batch_readahead)
        manifest = self._table.read_manifest()
        self._shard_rows = manifest.fragment_rows
        self.fingerprint = manifest.digest
        self._schema: pyarrow.Schema | None = None

    @property
    def num_rows(self) -> int:
        return sum(self._shard_rows)

    @property
    def num_shards(self) -> int:
        """See `StorageBackend`. Shards are fragments."""
        return len(self._shard_rows)

    @property
    def version(self) -> int:
        """The version of the dataset that is read."""
        return self._table.version

    @property
    def schema(self) -> pyarrow.Schema:
        if self._schema is None:
            check_blobs(self._table)
            self._schema = binary_schema(self._table.schema)
        return self._schema

    @property
    def table(self) -> pyarrow.Table:
        """See `StorageBackend`. This loads all data."""
        return self.slice(0, self.num_rows)

    def get_row(self, idx: int) -> dict[str, Any]:
        row: dict[str, Any] = self.take([check_index(idx, self.num_rows)]).to_pylist()[0]
        return row

    def take(self, indices: Indices) -> pyarrow.Table:
        """See `StorageBackend`. Threads that ask at the same time are served by one call of Lance."""
        schema, rows = self.schema, check_indices(indices, self.num_rows).tolist()
        taken = self._table.take(rows)
        if taken.schema.equals(schema):
            return taken
        for name in blob_columns(self._table.schema):
            taken = taken.set_column(schema.get_field_index(name), name, read_blobs(self._table, name, rows))
        return taken.cast(schema)

    def slice(self, start: int, length: int) -> pyarrow.Table:
        if start < 0:
            raise IndexError(f"row {start} of {self.num_rows}")
        length = max(min(length, self.num_rows - start), 0)
        schema = self.schema
        if not length:
            return schema.empty_table()
        with lance_errors(self._table.path):
            return self._table.dataset.to_table(offset=start, limit=length, blob_handling="all_binary").cast(schema)

    def iter_batches(
        self, shard_indices: list[int] | None = None, shuffle: bool = False, seed: int | None = None
    ) -> Iterator[pyarrow.RecordBatch]:
        shards = check_shards(shard_indices, self.num_shards)
        schema, dataset = self.schema, self._table.dataset
        with lance_errors(self._table.path):
            fragments = dataset.get_fragments()
            for shard in shuffled(shards, seed) if shuffle else shards:
                batches = fragments[shard].to_batches(batch_readahead=self._batch_readahead, blob_handling="all_binary")
                for batch in batches:
                    yield batch.cast(schema)

    def __getstate__(self) -> dict[str, Any]:
        return {
            "table": self._table,
            "batch_readahead": self._batch_readahead,
            "shard_rows": self._shard_rows,
            "fingerprint": self.fingerprint,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._table = state["table"]
        self._batch_readahead = state["batch_readahead"]
        self._shard_rows = state["shard_rows"]
        self.fingerprint = state["fingerprint"]
        self._schema = None


if TYPE_CHECKING:
    _: type[StorageBackend] = LanceBackend
