"""A shard that is a Parquet file: each row is a sample.

What the footer says is known at once: the rows, and mostly which cells are null. Of the data, only keys and the names
that tell extensions are read, one page of each column whose extension nothing else tells, and the levels of columns
with some nulls. Where a cell is, and how large, is found by page when it is looked up; with `full`, beforehand.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import lru_cache
from typing import cast

import numpy as np
from numpy.typing import NDArray

from touchfs.catalog.rows.row_keys import RowKeys
from touchfs.core.errors import FormatError
from touchfs.core.progress import reached
from touchfs.form.arrays import Npy
from touchfs.form.base import Form
from touchfs.form.plain import BYTES
from touchfs.format import magic
from touchfs.format.arrow.column import numbers_of
from touchfs.shard.options import Options
from touchfs.shard.single import SingleFile
from touchfs.source.fingerprint import Files
from touchfs.tables.parquet.open_file import open_parquet
from touchfs.tables.parquet.parquet_cell import ParquetCell
from touchfs.tables.parquet.parquet_item import ParquetItem
from touchfs.tables.parquet.parquet_list import ParquetList
from touchfs.tables.rows.columns import ITEMS_MAX, CellColumn
from touchfs.tables.rows.extensions import UNKNOWN, cell_extensions, items_at
from touchfs.tables.rows.features import FeatureRows
from touchfs.tables.rows.json_rows import JsonRows
from touchfs.tables.rows.rows import NO_FILE, ColumnFiles, RowBatch, WholeColumn
from touchfs.tables.rows.whole_column import whole_columns
from touchfs.tables.shards.parquet_cells import UNKNOWN_SIZE, FoundCells, find_cells, find_lists
from touchfs.tables.values.field_paths import Path

# A column of one value takes few bytes; but no small file may claim to have billions of rows.
_ROWS_MAX = 1 << 26
# Lists of a column in a row group, whose places or names are in memory
_KEPT = 4


class ParquetShard(SingleFile, FeatureRows):
    """The rows of the Parquet file at `path`. A batch is a row group."""

    def __init__(self, path: str, options: Options, files: Files) -> None:
        super().__init__(path, os.path.basename(path), files)
        self._table = open_parquet(self._file, options.limits)
        if len(self) > max(8 * self.size, _ROWS_MAX):
            raise FormatError(f"a Parquet file of {self.size:,} bytes does not have {len(self):,} rows", path=path)
        schema = self._table.ipc_schema
        self.problems: list[str] = []
        # They are asked for once for each element of a list.
        self._item_places = lru_cache(maxsize=_KEPT)(self._table.item_places)
        self._read_lists = lru_cache(maxsize=_KEPT)(self._table.read_lists)
        self._describe(schema, None, options, self._name)
        self._rows = JsonRows(self._table, schema, self._columns, self._key, self._kinds, self._name, options.partition)

    def __len__(self) -> int:
        return self._table.rows

    def batch_of(self, ordinal: int, *, full: bool = False) -> RowBatch:
        """See `TableRows.batch_of`: a row group."""
        number, row = self._table.locate(ordinal)
        first = ordinal - row
        rows = int(self._table.starts[number + 1]) - first
        problems: list[tuple[int, str]] = []
        partial = np.zeros((len(self._columns), rows), np.bool_)
        columns = []
        for place, column in enumerate(self._columns):
            if column.item is not None:
                columns.append(self._items(place, number, column.item, partial, problems, full=full))
            elif self._is_list(column):
                valid, partial[place] = find_lists(self._table, column.path[0], number)
                columns.append(self._arrays(place, valid))
            else:
                columns.append(self._files(place, number, self._valid(place, number), problems, full=full))
        columns.append(self._rows.files(first, partial, columns, problems, full=full))
        keys = None if self._key is None else RowKeys.of(self._table.read_array(number, (self._key,)))
        reached(number, self._table.batches)
        return RowBatch(first, rows, columns, keys, problems)

    def whole_columns(self) -> list[WholeColumn]:
        """See `TableRows.whole_columns`. The footer says which columns have nulls."""
        return whole_columns(self._table.ipc_schema, self._columns, self._name, len(self), self._may_have_nulls)

    def _may_have_nulls(self, number: int) -> bool:
        return any(self._table.nulls((number,), batch) != 0 for batch in range(self._table.batches))

    def _is_list(self, column: CellColumn) -> bool:
        return numbers_of([self._table.ipc_schema.fields[column.path[0]]]) is not None

    def _longest(self, path: Path) -> int:
        """How many elements the lists of a column have at most that are files; 0 if they are not found."""
        longest = 0
        try:
            for number in range(self._table.batches):
                places = self._item_places(path, number)
                if places is None:
                    return 0
                longest = max(longest, int(places[1].max(initial=-1)) + 1)
        except FormatError:
            return 0  # they are in the JSON, which says what is damaged
        return min(longest, ITEMS_MAX)

    def _items(
        self,
        place: int,
        number: int,
        item: int,
        partial: NDArray[np.bool_],
        problems: list[tuple[int, str]],
        *,
        full: bool,
    ) -> ColumnFiles:
        """The files of an element of lists in a row group."""
        column, first, rows = self._columns[place], int(self._table.starts[number]), partial.shape[1]
        places = self._item_places(column.path, number)
        row, of_row = (np.zeros(0, np.int64),) * 2 if places is None else places
        valid = np.zeros(rows, np.bool_)
        valid[row[of_row == item]] = True
        partial[place, row[of_row >= ITEMS_MAX]] = True
        valid &= ~partial[place]
        cells: dict[int, bytes] = {}
        for each in np.flatnonzero(valid).tolist() if full else ():
            try:
                (values,) = self._table.items(column.path, first + each, 1)
                cells[each] = (values or [])[item]
            except FormatError as error:
                problems.append((first + each, f"its {column.name!r}: {error.message}"))

        def names(path: Path) -> Sequence[str | None]:
            return items_at(self._read_lists(number, path), item)

        def others(missing: Sequence[int]) -> Sequence[str]:
            if full:
                return [magic.extension(cells[each]) if each in cells else UNKNOWN for each in missing]
            return [self._default(place) if valid.any() else ""] * len(missing)

        of_rows, extensions = cell_extensions(column, rows, names, others)
        kind, nothing, size = np.full(rows, NO_FILE, np.int16), np.zeros(rows, np.int64), np.zeros(rows, np.int64)
        form = ParquetItem(column.path, item)
        for i, extension in enumerate(extensions):
            mask = valid & (of_rows == i)
            if mask.any():
                kind[mask] = self._kinds.number(place, self._name, form, extension, by_ordinal=True)
        size[[*cells]] = [*map(len, cells.values())]
        return ColumnFiles(column.name, self._kinds.of(place), kind, nothing, nothing, size)

    def _first_cell(self, column: CellColumn, number: int) -> bytes | None:
        """The first cell of a column in a row group that is not null; None if there is none."""
        if column.item is None:
            valid = self._valid(self._columns.index(column), number)
            if not valid.any():
                return None
            row = int(self._table.starts[number]) + int(valid.argmax())
            return self._table.cells(column.path, range(row, row + 1))[0]
        places = self._item_places(column.path, number)
        rows = [] if places is None else places[0][places[1] == column.item]
        if not len(rows):
            return None
        (values,) = self._table.items(column.path, int(self._table.starts[number] + rows[0]), 1)
        return cast("bytes", (values or [])[column.item])

    def _arrays(self, place: int, valid: NDArray[np.bool_]) -> ColumnFiles:
        """The files of a column of lists of numbers, whose sizes its type tells."""
        column = self._columns[place]
        form = ParquetList(column.path[0], cast(Npy, column.form))
        kind, nothing = np.full(len(valid), NO_FILE, np.int16), np.zeros(len(valid), np.int64)
        if valid.any():
            kind[valid] = self._kinds.number(place, self._name, form, column.extension, by_ordinal=True)
        size = np.where(valid, form.size(0, b""), nothing)
        return ColumnFiles(column.name, self._kinds.of(place), kind, nothing, nothing, size)

    def _valid(self, place: int, number: int) -> NDArray[np.bool_]:
        """The cells of bytes in a row group that are not null: bool[rows]. If that cannot be read, all count."""
        column = self._columns[place]
        try:
            return self._table.validity(column.path, number, full=True)
        except FormatError as error:
            self._add_problem(f"which cells of {column.name!r} are null is not known: {error.message}")
            return np.ones(int(np.diff(self._table.starts)[number]), np.bool_)

    def _add_problem(self, problem: str) -> None:
        if problem not in self.problems:
            self.problems.append(problem)

    def _files(
        self, place: int, number: int, valid: NDArray[np.bool_], problems: list[tuple[int, str]], *, full: bool
    ) -> ColumnFiles:
        """The files of a column of bytes in a row group."""
        column, first, rows = self._columns[place], int(self._table.starts[number]), len(valid)

        def problem(row: int, text: str) -> None:
            problems.append((first + row, f"its {column.name!r}: {text}"))

        def others(missing: Sequence[int]) -> Sequence[str]:
            if found.head is not None:
                return [magic.extension(found.head(row)) if valid[row] else "" for row in missing]
            return [self._default(place) if valid.any() else ""] * len(missing)

        found = FoundCells.unknown(rows)
        if full:
            found = find_cells(self._table, self._file, column.path, number, problem)

        of_rows, extensions = cell_extensions(column, rows, lambda path: self._table.read_values(number, path), others)
        kind = np.full(rows, NO_FILE, np.int16)
        is_known = found.size != UNKNOWN_SIZE
        fits = valid & (column.fits(found.size) | ~is_known)
        for mask, form in ((fits, column.form), (valid & ~fits, BYTES)):
            for i, extension in enumerate(extensions):
                chosen = mask & (of_rows == i)
                if chosen.any():
                    kind[chosen] = self._cell_kind(place, form, extension if mask is fits else UNKNOWN, found.is_range)
        for row in np.flatnonzero(valid & ~fits).tolist():
            problem(row, "it has not as many bytes as its shape says")
        size = np.where(valid & is_known, found.size + np.where(fits, column.form.size(0, b"") or 0, 0), 0)
        made = ColumnFiles(column.name, self._kinds.of(place), kind, found.offset, found.length, size)
        return self._with_videos(
            made, place, self.path, lambda path: self._table.read_values(number, path), first, problems
        )

    def _cell_kind(self, place: int, form: Form, extension: str, is_range: bool) -> int:
        if is_range:
            return self._kinds.number(place, self._name, form, extension)
        return self._kinds.number(
            place, self._name, ParquetCell(self._columns[place].path, form), extension, by_ordinal=True
        )

    def _first_extension(self, place: int) -> str:
        """That of the first cell that can be read."""
        column = self._columns[place]
        for number in range(self._table.batches):
            try:
                data = self._first_cell(column, number)
            except FormatError as error:
                self._add_problem(f"the first {column.name!r} is damaged: {error.message}")
                continue
            if data is not None:
                return magic.extension(data[: magic.MAGIC_SIZE])
        return UNKNOWN
