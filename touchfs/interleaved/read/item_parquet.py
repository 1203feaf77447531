"""A Parquet file of interleaved samples, read in pieces: some rows of some columns at a time.

pyarrow reads through `OpenedShard`, and page by page, so what is in memory does not depend on the size of row groups.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from touchfs.core.errors import ColumnValueError, FormatError, MissingColumnError
from touchfs.core.extent import drive
from touchfs.core.extent.file_object import FileObject
from touchfs.interleaved.items.file_column import FRAME_COLUMN, MEMBER_COLUMN, is_file_type
from touchfs.interleaved.items.schema import RESERVED_COLUMNS
from touchfs.interleaved.read.opened import OpenedShard
from touchfs.limits import Limits
from touchfs.tables.parquet.dictionary_sizes import rows_that_fit
from touchfs.tables.parquet.layout.footer import ParquetFooter, parse_parquet

_ID = "sample_id"
_READ_SIZE = 1 << 20
# Rows of a batch: with fewer, calls cost more than the reading; of the ids alone, there may be more.
_ROWS_MAX, _IDS = 4096, 1 << 16


class ItemParquet:
    """The Parquet file at `path`, of a user's choice.

    Raises what opening raises, FormatError for a file that is not Parquet, and MissingColumnError, which is also a
    KeyError, if it has no `sample_id`.
    """

    def __init__(self, path: str, storage_options: Mapping[str, Any], limits: Limits) -> None:
        self.path = path
        self._limits = limits
        self._shard = OpenedShard(path, storage_options)
        try:
            with _converted_errors(path):
                self._footer: ParquetFooter = drive(parse_parquet(self._shard.size), self._shard)
                self._file = pq.ParquetFile(FileObject(self._shard), buffer_size=_READ_SIZE, pre_buffer=False)
                self.schema: pa.Schema = self._file.schema_arrow.remove_metadata()
            if _ID not in self.schema.names:
                raise MissingColumnError(f"has no column {_ID!r}, so it has no interleaved samples", path=path)
            if repeated := [name for name, count in Counter(self.schema.names).items() if count > 1]:
                raise FormatError(f"has several columns {repeated[0]!r}: rename all but one", path=path)
        except BaseException:
            self._shard.close()
            raise
        self.rows: int = self._file.metadata.num_rows

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        self._shard.close()

    def projected(self, names: Sequence[str] | None) -> list[str]:
        """Return the columns to read: the reserved ones and those of `names` that the file has; None: all."""
        found = self.schema.names
        if names is None:
            return list(found)
        reserved = [name for name in RESERVED_COLUMNS if name in found]
        if "source_ref" in found and is_file_type(self.schema.field("source_ref").type):
            reserved += [name for name in (MEMBER_COLUMN, FRAME_COLUMN) if name in found]
        return reserved + [name for name in names if name in found and name not in reserved]

    def tables(self, start: int, columns: Sequence[str], size: int) -> Iterator[tuple[int, pa.Table]]:
        """Yield the rows from `start` on, in tables of about `size` bytes, each with the number of its first row.

        Raises FormatError for damaged data, and ColumnValueError, which is also a ValueError, for an id that is null.
        """
        first = 0
        for group in range(self._file.metadata.num_row_groups):
            found = self._file.metadata.row_group(group)
            if first + found.num_rows > start:
                count = size * found.num_rows // max(found.total_byte_size, 1)
                yield from self._batches(group, first, start, columns, min(max(count, 1), _ROWS_MAX))
            first += found.num_rows

    def ids(self) -> Iterator[pa.Array]:
        """Yield the ids of all rows as large strings, in order. Raises as `tables`."""
        for group in range(self._file.metadata.num_row_groups):
            for _, table in self._batches(group, 0, 0, [_ID], _IDS):
                ids = table.column(0)
                with _converted_errors(self.path):
                    if pa.types.is_dictionary(ids.type):
                        ids = ids.cast(ids.type.value_type)
                    ids = ids.cast(pa.large_string())
                yield from ids.chunks

    def _batches(
        self, group: int, first: int, start: int, columns: Sequence[str], count: int
    ) -> Iterator[tuple[int, pa.Table]]:
        """The rows of a row group from row `start` of the file on. `first` is the first row of the group."""
        with _converted_errors(self.path):
            numbers = {self.schema.names.index(name) for name in columns}
            count = rows_that_fit(self._shard, self._footer, group, numbers, count, self._limits)
            batches = self._file.iter_batches(count, row_groups=[group], columns=list(columns), use_threads=False)
            for batch in batches:
                skipped = min(max(start - first, 0), batch.num_rows)
                table = pa.Table.from_batches([batch]).slice(skipped).select(columns).replace_schema_metadata(None)
                if table[_ID].null_count:
                    raise ColumnValueError(f"the column {_ID!r} contains null values", path=self.path)
                if table.num_rows:
                    yield first + skipped, table
                first += batch.num_rows


class _converted_errors:
    """Raise what pyarrow raises in the block as FormatError."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, FormatError) and error.path is None:
            raise error.at(self._path) from error.__cause__
        if isinstance(error, pa.ArrowException) or type(error) is OSError:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise FormatError(f"is not a Parquet file that can be read: {reason}", path=self._path) from error
