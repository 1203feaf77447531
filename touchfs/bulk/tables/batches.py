"""The rows of tables as record batches, and those of Arrow and Parquet files. `lance_batches` has those of Lance
datasets.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, Protocol

from touchfs.bulk.convert.input import InputShard
from touchfs.core.errors import FormatError
from touchfs.core.extras import load_pyarrow
from touchfs.core.progress import Progress
from touchfs.limits import Limits
from touchfs.shard.single import open_source
from touchfs.source.store import StoredFile
from touchfs.tables.arrow.arrow_file import ArrowFile, open_arrow
from touchfs.tables.parquet.open_file import OpenParquet, open_parquet
from touchfs.tables.shards.files import fingerprints, read_metadata
from touchfs.tables.values.partition import INTEGER, TEXT, parse_partition, partition_types

if TYPE_CHECKING:
    import pyarrow

# Stored bytes of a batch. Of 400 rows of a megabyte in one batch the process had 1.5 GB, and so it has 0.5 GB.
BATCH_BYTES = 16 << 20


class BatchSource(Protocol):
    """A table that is read in batches."""

    @property
    def schema(self) -> pyarrow.Schema:
        """The schema, with its metadata."""
        ...

    @property
    def directory(self) -> str:
        """The directory that has the videos of the table, if there are any."""
        ...

    @property
    def description(self) -> dict[str, Any]:
        """`schema_fingerprint` and `features` of the cache that the table is; without one, "" and nothing."""
        ...

    def batches(self, progress: Progress) -> Iterator[pyarrow.RecordBatch]:
        """All rows. `progress` gets what is done and the total. Raises FormatError, and the errors of files."""
        ...


class DirectoryColumns:
    """The columns that the values of directories are in the tables of a dataset (`touchfs.tables.values.partition`)."""

    def __init__(self, shards: Sequence[InputShard], schema: pyarrow.Schema) -> None:
        pa = load_pyarrow()
        types = partition_types(shard.partition for shard in shards)
        kinds = {INTEGER: pa.int32(), TEXT: pa.string()}
        self._added = [pa.field(name, kinds[kind]) for name, kind in types.items() if name not in schema.names]
        self.schema = pa.schema([*schema, *self._added], schema.metadata)

    def of(self, batch: pyarrow.RecordBatch, shard: InputShard) -> pyarrow.RecordBatch:
        """Rows of a shard with these columns."""
        pa, values = load_pyarrow(), parse_partition(shard.partition)
        added = [pa.array([values.get(field.name)] * len(batch), field.type) for field in self._added]
        return pa.RecordBatch.from_arrays([*batch.columns, *added], schema=self.schema)


class FileBatches(ABC):
    """Files that are tables, in order. Raises FormatError for files with different columns."""

    def __init__(self, shards: Sequence[InputShard], limits: Limits) -> None:
        self._shards = [shard._replace(files=fingerprints(shard.path)) for shard in shards]
        self._limits = limits
        self.directory = os.path.dirname(shards[0].path)
        with closing(self._open(0)) as first:
            self._stored = self._table(first).schema
        self._columns = DirectoryColumns(shards, self._stored)
        self.schema = self._columns.schema

    @abstractmethod
    def _table(self, file: StoredFile) -> ArrowFile | OpenParquet:
        """The table in a file."""

    @abstractmethod
    def _parts(self, table: Any, size: int) -> Iterator[tuple[int, pyarrow.RecordBatch]]:
        """The rows of a table in a file of `size` bytes: batches, each with the bytes that are done after it."""

    @property
    def description(self) -> dict[str, Any]:
        metadata = read_metadata(self._shards[0].path, self._shards[0].files)
        if metadata is None:
            return {"schema_fingerprint": ""}
        return {"schema_fingerprint": metadata.schema_fingerprint, "features": metadata.features}

    def batches(self, progress: Progress) -> Iterator[pyarrow.RecordBatch]:
        """See `BatchSource.batches`. The progress is in bytes."""
        sizes = [shard.files[os.path.basename(shard.path)].size for shard in self._shards]
        before = 0
        for number, shard in enumerate(self._shards):
            with closing(self._open(number)) as file:
                table = self._table(file)
                if not table.schema.equals(self._stored):
                    message = f"its columns are not those of {self._shards[0].path}: convert the two one by one"
                    raise FormatError(message, path=shard.path)
                row = 0
                for done, batch in self._parts(table, sizes[number]):
                    yield self._columns.of(chosen_rows(batch, row, shard), shard)
                    row += len(batch)
                    progress(before + done, sum(sizes))
            before += sizes[number]

    def _open(self, number: int) -> StoredFile:
        shard = self._shards[number]
        return open_source(shard.path, os.path.basename(shard.path), shard.files)


class ArrowBatches(FileBatches):
    """Arrow files, in their batches."""

    def _table(self, file: StoredFile) -> ArrowFile:
        return open_arrow(file, self._limits)

    def _parts(self, table: ArrowFile, size: int) -> Iterator[tuple[int, pyarrow.RecordBatch]]:
        for number in range(table.batches):
            yield size * (number + 1) // table.batches, table.read_batch(number)


class ParquetBatches(FileBatches):
    """Parquet files, in batches of at most `rows` rows and about 16 MB."""

    def __init__(self, shards: Sequence[InputShard], rows: int, limits: Limits) -> None:
        super().__init__(shards, limits)
        self._rows = rows

    def _table(self, file: StoredFile) -> OpenParquet:
        return open_parquet(file, self._limits)

    def _parts(self, table: OpenParquet, size: int) -> Iterator[tuple[int, pyarrow.RecordBatch]]:
        count = min(self._rows, max(1, table.rows * BATCH_BYTES // max(size, 1)))
        row = 0
        while row < table.rows:
            batch = table.read(row, count)
            row += len(batch)
            yield size * row // table.rows, batch


def chosen_rows(batch: pyarrow.RecordBatch, first: int, shard: InputShard) -> pyarrow.RecordBatch:
    """The rows of a batch that are chosen of a shard, of which the batch has those from the `first` on."""
    if shard.chosen is None:
        return batch
    numbers = shard.chosen.numbers
    start, end = bisect_left(numbers, first), bisect_left(numbers, first + len(batch))
    return batch.take(load_pyarrow().array([number - first for number in numbers[start:end]], "int64"))


def of_size(batches: Iterator[pyarrow.RecordBatch], rows: int) -> Iterator[pyarrow.RecordBatch]:
    """The same rows in batches of `rows` rows, the last one smaller."""
    pa = load_pyarrow()
    waiting: list[pyarrow.RecordBatch] = []
    count = 0
    for batch in batches:
        waiting.append(batch)
        count += batch.num_rows
        if count >= rows:
            whole = pa.concat_batches(waiting)
            full = count - count % rows
            yield from (whole.slice(start, rows) for start in range(0, full, rows))
            waiting, count = [whole.slice(full)], count - full
    if count:
        yield pa.concat_batches(waiting)
