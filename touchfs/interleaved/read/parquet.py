"""Read Parquet files of interleaved samples: each row is an item.

With `max_batch_bytes`, the ids are read first, to know where each sample ends; then the rows are read in pieces. The
rows of a sample come together, also if others are between them, which wait for its last row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from touchfs.core.errors import FormatError
from touchfs.interleaved.items.schema import INTERLEAVED_SCHEMA, align_interleaved_table
from touchfs.interleaved.read.complete_samples import SampleGatherer
from touchfs.interleaved.read.cursor import BatchCursor, SamplePlace
from touchfs.interleaved.read.divided import SamplePiece
from touchfs.interleaved.read.files import ItemPartition
from touchfs.interleaved.read.item_parquet import ItemParquet
from touchfs.interleaved.read.reader import PartitionReader, aligned
from touchfs.interleaved.read.sample_runs import SampleRuns
from touchfs.tables.parquet.layout import PARQUET_SUFFIXES

PARQUET_EXTENSIONS = PARQUET_SUFFIXES
# Bytes of rows that are read at a time. With batches of 8 MB, 8 MB take 66 MB of memory at the peak, 2 MB take 32.
_PIECE = 2 << 20


@dataclass(frozen=True, eq=False)
class InterleavedParquetReader(PartitionReader):
    """A reader of Parquet files of interleaved samples.

    The parameters are those of `PartitionReader`: `file_paths`, `files_per_partition`, `blocksize`, `max_batch_bytes`,
    `fields`, `schema`, `schema_overrides`, `read_kwargs`, `limits`, and `file_extensions` of the files in a directory.
    The columns are the reserved ones and those of `fields`, or all; a column that a file lacks is null. Locators may be
    JSON or FILE groups.
    """

    file_extensions: Sequence[str] = field(default=PARQUET_EXTENSIONS, kw_only=True)

    def columns(self, partition: ItemPartition) -> list[str]:
        schema, counts = self._look(partition)
        return list(schema.names) if any(counts) else []

    def _samples(self, partition: ItemPartition, start: BatchCursor) -> Iterator[SamplePiece]:
        schema, counts = self._look(partition)
        starts = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
        if start.file < len(counts) and start.number > counts[start.file]:
            path = partition.files[start.file]
            raise FormatError(f"the cursor is at row {start.number} of {counts[start.file]}", path=path)
        row = int(starts[start.file]) + start.number
        if self.max_batch_bytes is None:
            for first, table in self._tables(partition, schema, starts, row):
                file = _file_of(first, starts)
                place = SamplePlace(file, first + table.num_rows - int(starts[file]), file)
                yield SamplePiece(table, [table.num_rows], [place])
            return
        runs = SampleRuns(ids for path in partition.files for ids in self._ids(path))
        if row not in runs.starts:
            raise FormatError(
                f"the cursor is at row {start.number}, where no sample begins", path=partition.files[start.file]
            )
        gatherer = SampleGatherer(runs, starts, row, self.limits.decoded)
        for first, table in self._tables(partition, schema, starts, runs.first_needed(row)):
            try:
                yield from gatherer.add(first, table)
            except FormatError as error:
                raise error.at(partition.files[_file_of(first, starts)]) from None

    def _look(self, partition: ItemPartition) -> tuple[pa.Schema, list[int]]:
        """The schema of the columns of all files together, and the number of rows of each.

        Without `fields`, columns are in the order of the files, and reserved ones that are missing come last. With
        `fields`, the reserved ones come first.
        """
        schema = pa.schema([]) if self.fields is None else INTERLEAVED_SCHEMA
        counts, left_out = [], []
        for path in partition.files:
            with closing(ItemParquet(path, self.options.of(path), self.limits)) as file:
                names = file.projected(self._names)
                left_out += [name for name in file.schema.names if name not in names]
                found = aligned(file.schema.empty_table().select(names), None, path).schema
                counts.append(file.rows)
            try:
                schema = pa.unify_schemas([schema, found], promote_options="permissive")
            except pa.ArrowException as error:
                reason = str(error).splitlines()[0]
                raise FormatError(f"a column has not the type that it had before: {reason}", path=path) from error
        if self.fields is not None:
            self._say_once("fields= leaves out columns that the files have", list(dict.fromkeys(left_out)))
        more = [*INTERLEAVED_SCHEMA, *(pa.field(name, pa.null()) for name in self.fields or ())]
        return pa.schema([*schema, *(field for field in more if field.name not in schema.names)]), counts

    @property
    def _names(self) -> Sequence[str] | None:
        """The columns to read besides the reserved ones; None: all."""
        if self.target is None:
            return self.fields
        return [name for name in self.target.names if self.fields is None or name in self.fields]

    def _tables(
        self, partition: ItemPartition, schema: pa.Schema, starts: NDArray[np.int64], row: int
    ) -> Iterator[tuple[int, pa.Table]]:
        """Yield the rows from a row on, in pieces of this schema. Rows are counted over all files."""
        size = min(self.max_batch_bytes or _PIECE, _PIECE)
        for number, path in enumerate(partition.files):
            if starts[number + 1] <= row:
                continue
            with closing(ItemParquet(path, self.options.of(path), self.limits)) as file:
                columns = file.projected(self._names)
                for first, table in file.tables(max(row - int(starts[number]), 0), columns, size):
                    yield first + int(starts[number]), aligned(aligned(table, None, path), schema, path)

    def _ids(self, path: str) -> Iterator[pa.Array]:
        with closing(ItemParquet(path, self.options.of(path), self.limits)) as file:
            yield from file.ids()

    def _empty(self, partition: ItemPartition) -> pa.Table:
        if not partition.files:
            return self._without_rows(())
        schema, _ = self._look(partition)
        return align_interleaved_table(schema.empty_table(), self.target)


def _file_of(row: int, starts: NDArray[np.int64]) -> int:
    """The number of the file that a row is in. `starts` are the first rows of the files."""
    return int(np.searchsorted(starts, row, "right")) - 1
