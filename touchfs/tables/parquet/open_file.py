"""Open Parquet files: their rows, columns and cells, of which only the pages that are needed are read."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, cast, overload

import numpy as np
from numpy.typing import NDArray

from touchfs.core.errors import FormatError
from touchfs.core.extent import Memory, drive
from touchfs.format.arrow.file import parse_arrow
from touchfs.format.arrow.schema import IpcSchema
from touchfs.limits import Limits
from touchfs.tables.parquet.chunk_pages import ParquetPages
from touchfs.tables.parquet.columns import ParquetColumns
from touchfs.tables.parquet.int96 import Int96Values
from touchfs.tables.parquet.layout.cell_ranges import CellRanges
from touchfs.tables.parquet.layout.footer import ParquetFooter, parse_parquet
from touchfs.tables.parquet.leaf_values import LeafValues
from touchfs.tables.values.field_paths import Path, beside_path, build_path, values_in_lists
from touchfs.tables.values.json_values import json_values, row_lines
from touchfs.tables.values.open_files import OpenTableFiles
from touchfs.tables.values.pyarrow_errors import pyarrow_errors
from touchfs.tables.values.record_batch import record_batch
from touchfs.tables.values.value_sizes import JSON_COPIES

if TYPE_CHECKING:
    import pyarrow

    from touchfs.source.store import StoredFile

# Of a column whose values are made one after the other
ROWS_AT_ONCE = 256


class OpenParquet:
    """The rows, columns and cells of a Parquet file. Safe for any number of threads; all methods may block.

    A *batch* is a row group. A *path* is the number of a column and of children of structs below it, as in the Arrow
    schema of the file (`touchfs.tables.values.field_paths`). Opening reads the footer only.

    Raises FormatError for a damaged or encrypted file, MissingExtraError without pyarrow where values are decoded, and
    the errors of its source.
    """

    # The number of the first row of each row group, and of all rows: int64[batches + 1].
    starts: NDArray[np.int64]

    def __init__(self, source: StoredFile, limits: Limits) -> None:
        source.open()
        self._footer: ParquetFooter = drive(parse_parquet(source.size), source)
        self._pages = ParquetPages(source, self._footer, limits)
        self._values = LeafValues(source, self._footer, self._pages, limits)
        self._columns = ParquetColumns(self._footer, self._values, limits)
        # As JSON has their values
        self._shown = ParquetColumns(self._footer, Int96Values(self._values, self._footer.schema), limits)
        self.starts = self._footer.starts

    @property
    def rows(self) -> int:
        """The number of rows of all row groups."""
        return int(self.starts[-1])

    @property
    def batches(self) -> int:
        """The number of row groups."""
        return self._footer.groups

    @property
    def schema(self) -> pyarrow.Schema:
        """The Arrow schema, with the metadata of the file. Needs pyarrow; reads nothing more."""
        return self._values.schema

    @cached_property
    def ipc_schema(self) -> IpcSchema:
        """The same schema as `touchfs.tables.rows.columns` takes it."""
        message = self.schema.serialize().to_pybytes()
        return drive(parse_arrow(len(message)), Memory(message)).schema

    def locate(self, row: int) -> tuple[int, int]:
        """The row group that has a row, and the row in it. Raises IndexError."""
        if not 0 <= row < self.rows:
            raise IndexError(f"row {row} of {self.rows}")
        batch = int(self.starts.searchsorted(row, "right")) - 1
        return batch, row - int(self.starts[batch])

    def cell_ranges(self, path: Path, batch: int, first: int = 0, count: int | None = None) -> CellRanges | None:
        """The byte ranges in the file of the cells of some rows of a row group; None if the cells are not plain ranges.

        `first` counts from the row group's first row; `count` is None for all rows after it. The path leads to bytes,
        text or numbers of a fixed width, in no list. They are ranges if the chunk is not compressed, and its pages are
        plain or of a dictionary. Reads page headers, levels, and the lengths before values: not the values. Needs no
        pyarrow. What is found of a page is kept.
        """
        most = self._pages.rows(batch) - first
        count = most if count is None else count
        if not 0 <= count <= most or first < 0:
            raise FormatError(f"a Parquet row group of {first + most} rows has no rows {first} to {first + count}")
        return self._pages.ranges(self._footer.schema.leaf_at(path), batch, first, count)

    @overload
    def validity(self, path: Path, batch: int, *, full: Literal[True]) -> NDArray[np.bool_]: ...

    @overload
    def validity(self, path: Path, batch: int, *, full: bool = False) -> NDArray[np.bool_] | None: ...

    def validity(self, path: Path, batch: int, *, full: bool = False) -> NDArray[np.bool_] | None:
        """Find the rows of a row group that have a value at a path in no list: bool[rows of the row group].

        None if the footer does not say, and pages would have to be decompressed for it. With `full` that is done, and
        the result is never None.
        """
        leaf = self._footer.schema.leaf_at(path)
        if leaf.max_repetition:
            raise FormatError(f"column {build_path(path)} of the Parquet file is in a list")
        found = self._pages.validity(leaf, batch, full=full)
        if found is None and full:  # levels of an old encoding, which only pyarrow's reader knows
            return np.asarray(self._leaf(path, batch, 0, self._pages.rows(batch)).is_valid())
        return found

    def item_places(self, path: Path, batch: int) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
        """Find the values of a row group at a path through the elements of a list: the row in the row group of each,
        and its number in the list. None for lists in lists, and for files of old writers.
        """
        leaf = self._footer.schema.leaf_at(path)
        return self._pages.items(leaf, batch) if leaf.max_repetition == 1 else None

    def items(self, path: Path, first: int, count: int) -> list[list[Any] | None]:
        """The values at a path through the elements of a list, as Python has them: a list for each row of the file."""
        found: list[list[Any] | None] = []
        for batch, start, rows in self._parts(first, count):
            values = self._values.read(self._footer.schema.leaf_at(path), batch, start, rows)
            with pyarrow_errors("values of a Parquet file"):
                self._columns.check([values])
                found += values_in_lists(values, len(path) - 2)
        return found

    def read_lists(self, batch: int, path: Path) -> list[list[Any] | None]:
        """The values at a path through the elements of a list, in a list for each row of a row group."""
        return self.items(path, int(self.starts[batch]), self._pages.rows(batch))

    def nulls(self, path: Path, batch: int) -> int | None:
        """The number of nulls of a row group at a path to one leaf, also of those in lists; None if the footer does not
        say.
        """
        leaf = self._footer.schema.leaf_at(path)
        return 0 if leaf.max_definition == 0 else self._pages.chunk(leaf, batch).nulls

    def page_rows(self, path: Path, row: int) -> range:
        """The rows of the file (not of the row group) that are in the same page as a row, at a path to one leaf.

        They are read at the cost of one of them. Reads the offset index or page headers.
        """
        batch, place = self.locate(row)
        table, start = self._pages.table(self._footer.schema.leaf_at(path), batch), int(self.starts[batch])
        (number,) = table.spans(place, 1)
        return range(start + int(table.rows[number]), start + int(table.rows[number + 1]))

    def cells(self, path: Path, rows: range) -> list[bytes | None]:
        """The bytes of cells of rows of the file, at a path to bytes or text; None for null.

        Reads and decodes the pages that have them, in any encoding and codec.
        """
        return [cell for part in self._cell_arrays(path, rows) for cell in part.to_pylist()]

    def cell_buffers(self, path: Path, rows: range) -> tuple[NDArray[np.int64], memoryview]:
        """Like `cells`, of rows of one page, without copies: where each ends, after a 0, and their bytes end to end.

        A null has no bytes.
        """
        (cells,) = self._cell_arrays(path, rows)
        _, offsets, data = cells.buffers()
        ends = np.frombuffer(offsets, np.int64)[cells.offset : cells.offset + len(cells) + 1]
        return ends - ends[0], memoryview(data or b"")[int(ends[0]) : int(ends[-1])]

    def large_cells(self, path: Path, rows: range, least: int) -> tuple[CellRanges, memoryview, bool] | None:
        """Like `cell_buffers`, if over `least` bytes are decompressed for the rows: where the cells are in bytes, the
        bytes, and whether other pages share these, as a dictionary. None for other pages, and other encodings.
        """
        leaf, (batch, row) = self._footer.schema.leaf_at(path), self.locate(rows.start)
        if leaf.max_repetition:
            return None
        (number,) = self._pages.table(leaf, batch).spans(row, 1)
        return self._pages.decoded_cells(leaf, batch, number, least)

    def read(self, first: int, count: int, left_out: Collection[Path] = ()) -> pyarrow.RecordBatch:
        """Rows of the file from `first` on, without the cells at some paths; fewer at the end of the row group.

        Only pages that have these rows are read. The batch is checked and may be used freely. Extension types in lists
        and structs are their storage.
        """
        batch, row = self.locate(first)
        rows = min(count, self._pages.rows(batch) - row)
        return self._read(batch, row, rows, range(len(self.schema)), left_out)

    def read_batch(self, batch: int, columns: Sequence[str] | None = None) -> pyarrow.RecordBatch:
        """Read a row group, or some columns of it, in the order of the schema."""
        names = self.schema.names
        if columns is not None and (missing := set(columns).difference(names)):
            raise FormatError(f"the table has no column {min(missing)!r}")
        numbers = [i for i, name in enumerate(names) if columns is None or name in columns]
        return self._read(batch, 0, self._pages.rows(batch), numbers)

    def read_values(self, batch: int, path: Path) -> list[Any]:
        """The values of a column of a row group, or of a child of structs, as Python has them; null below a null."""
        values = self.read_array(batch, path)
        with pyarrow_errors("values of a Parquet file"):
            return cast("list[Any]", values.to_pylist())

    def read_array(self, batch: int, path: Path) -> pyarrow.Array:
        """The values of a column of a row group, or of a child of structs; null below a null, and for invalid ones."""
        beside = beside_path(self.ipc_schema, path)
        _, (column,) = self._columns.read(batch, 0, self._pages.rows(batch), path[:1], beside)
        with pyarrow_errors("values of a Parquet file"):
            import pyarrow.compute

            from touchfs.tables.values.sound import valid_or_null

            for _ in path[1:]:
                column = pyarrow.compute.struct_field(column, [0])
            self._columns.check([column])
            return valid_or_null(column)

    def read_column(self, column: int, first: int, count: int) -> pyarrow.Array:
        """The values of a column in rows from `first` on, fewer at the end."""
        others = [(other,) for other in range(len(self.schema)) if other != column]
        return self.read(first, count, others).column(0)

    def integers(self, column: int) -> NDArray[np.int64]:
        """The values of a column of integers in all row groups, −1 for nulls."""
        parts = [np.zeros(0, np.int64)]
        for number in range(self.batches):
            _, (found,) = self._columns.read(number, 0, self._pages.rows(number), [column])
            with pyarrow_errors("values of a Parquet file"):
                values = found.fill_null(-1) if found.null_count else found
                parts.append(values.to_numpy(zero_copy_only=False).astype(np.int64))
        return np.concatenate(parts)

    def json_column(self, batch: int, column: int, left_out: Collection[Path] = ()) -> Iterator[list[Any]]:
        """The values of a column of a row group as `json.dumps` takes them, without the cells at some paths.

        Yields those of some rows at a time.
        """
        rows = self._pages.rows(batch)
        for first in range(0, rows, ROWS_AT_ONCE):
            _, (values,) = self._shown.read(batch, first, min(ROWS_AT_ONCE, rows - first), [column], left_out)
            with pyarrow_errors("values of a Parquet file"):
                self._columns.check([values], JSON_COPIES)
                made = json_values(values)
            yield made

    def json_rows(self, first: int, count: int, left_out: Collection[Path] = ()) -> list[bytes]:
        """The rows from `first` on as JSON lines, without the cells at some paths; fewer at the end of the file."""
        texts: list[bytes] = []
        for batch, start, rows in self._parts(first, count):
            names, arrays = self._shown.read(batch, start, rows, range(len(self.schema)), left_out)
            with pyarrow_errors("values of a Parquet file"):
                self._columns.check(arrays, JSON_COPIES)
                texts += row_lines(names, arrays, rows)
        return texts

    def _read(
        self, batch: int, first: int, rows: int, columns: Sequence[int], left_out: Collection[Path] = ()
    ) -> pyarrow.RecordBatch:
        """Columns in rows of a row group, whose values are valid."""
        names, arrays = self._columns.read(batch, first, rows, columns, left_out)
        with pyarrow_errors("values of a Parquet file"):
            found = record_batch(names, arrays, rows)
            found.validate(full=True)
        return found

    def _cell_arrays(self, path: Path, rows: range) -> Iterator[pyarrow.LargeBinaryArray]:
        """The cells of rows of the file at a path to bytes or text, row group by row group."""
        import pyarrow

        for batch, first, count in self._parts(rows.start, len(rows)):
            values = self._leaf(path, batch, first, count)
            with pyarrow_errors("values of a Parquet file"):
                if isinstance(values.type, pyarrow.BaseExtensionType):
                    values = values.storage
                yield values.cast(pyarrow.large_binary())

    def _leaf(self, path: Path, batch: int, first: int, count: int) -> pyarrow.Array:
        """The values of the leaf at a path in rows of a row group, at least one; null below a null."""
        import pyarrow.compute

        values = self._values.read(self._footer.schema.leaf_at(path), batch, first, count)
        with pyarrow_errors("values of a Parquet file"):
            for _ in path[1:]:
                values = pyarrow.compute.struct_field(values, [0])
        return values

    def _parts(self, first: int, count: int) -> Iterator[tuple[int, int, int]]:
        """Rows of the file as rows of row groups: the row group, the first row in it, and the number of rows."""
        end = min(first + count, self.rows)
        while first < end:
            batch, row = self.locate(first)
            rows = min(end - first, self._pages.rows(batch) - row)
            yield batch, row, rows
            first += rows


_files = OpenTableFiles(OpenParquet)


def open_parquet(source: StoredFile, limits: Limits) -> OpenParquet:
    """The Parquet file in a source, which this process may have open (as `open_arrow`).

    Raises FormatError for a damaged or encrypted file, and the errors of sources.
    """
    return _files.get(source, limits)
