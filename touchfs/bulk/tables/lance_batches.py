"""The rows of Lance datasets as record batches. Blobs become columns of bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from touchfs.bulk.convert.input import InputShard
from touchfs.bulk.tables.batches import BATCH_BYTES, DirectoryColumns, chosen_rows
from touchfs.core.errors import FormatError
from touchfs.core.extras import load_pyarrow
from touchfs.core.progress import Progress
from touchfs.format.cache_metadata.layouts import VideoFramesMetadata
from touchfs.limits import Limits
from touchfs.tables.lance.blobs import binary_schema, check_blobs
from touchfs.tables.lance.dataset import LanceTable
from touchfs.tables.lance.errors import lance_errors
from touchfs.tables.lance.scan import LanceScan
from touchfs.tables.shards.lance import read_metadata
from touchfs.tables.shards.lance_files import is_lance, manifest_of, size_of

if TYPE_CHECKING:
    import pyarrow

# Batches, and bytes of files, that Lance may read ahead. Its own limits are 16 and 2 GiB.
_AHEAD, _BUFFER = 1, 32 << 20


def is_lance_table(shard: InputShard, limits: Limits) -> bool:
    """True for a Lance dataset whose rows are the samples: not for frames of videos."""
    return is_lance(shard.files) and not isinstance(read_metadata(shard.path, limits, shard.files), VideoFramesMetadata)


class LanceBatches:
    """Lance datasets, in order, in batches of at most `rows` rows and about 16 MB. See `BatchSource`.

    Raises FormatError for datasets with different columns, and for files or blobs that lie outside of a dataset.
    """

    def __init__(self, datasets: Sequence[InputShard], rows: int, limits: Limits) -> None:
        self._datasets = datasets
        self._rows = rows
        self._limits = limits
        self.directory = datasets[0].path

    @cached_property
    def _stored(self) -> pyarrow.Schema:
        return _schema(self._open(0))

    @cached_property
    def _columns(self) -> DirectoryColumns:
        return DirectoryColumns(self._datasets, self._stored)

    @property
    def schema(self) -> pyarrow.Schema:
        return self._columns.schema

    @property
    def description(self) -> dict[str, Any]:
        metadata = read_metadata(self.directory, self._limits, self._datasets[0].files)
        if metadata is None:
            return {"schema_fingerprint": ""}
        return {"schema_fingerprint": metadata.schema_fingerprint, "features": metadata.features}

    def batches(self, progress: Progress) -> Iterator[pyarrow.RecordBatch]:
        """See `BatchSource.batches`. The progress is in bytes."""
        sizes = [size_of(each.files) for each in self._datasets]
        for number in range(len(self._datasets)):
            table = self._open(number)
            if not _schema(table).equals(self._stored):
                raise FormatError(
                    f"its columns are not those of {self.directory}: convert the two one by one", path=table.path
                )
            done = 0
            for batch in self._read(table, min(self._rows, max(1, table.rows * BATCH_BYTES // max(sizes[number], 1)))):
                yield self._columns.of(chosen_rows(batch, done, self._datasets[number]), self._datasets[number])
                done += batch.num_rows
                progress(sum(sizes[:number]) + sizes[number] * done // table.rows, sum(sizes))

    def _read(self, table: LanceTable, rows: int) -> Iterator[pyarrow.RecordBatch]:
        with lance_errors(table.path):
            batches = table.dataset.to_batches(
                batch_size=rows,
                batch_readahead=_AHEAD,
                fragment_readahead=1,
                io_buffer_size=_BUFFER,
                blob_handling="all_binary",
            )
        while True:
            with lance_errors(table.path):
                batch = next(batches, None)
                if batch is None:
                    return
                batch = load_pyarrow().RecordBatch.from_arrays(batch.cast(self._stored).columns, schema=self._stored)
            yield batch

    def _open(self, number: int) -> LanceTable:
        path, files = self._datasets[number][:2]
        manifest, version = manifest_of(path, files)
        table = LanceTable(path, version, files[manifest])
        LanceScan(table).check_files()
        check_blobs(table)
        return table


def _schema(table: LanceTable) -> pyarrow.Schema:
    return binary_schema(table.schema)
