"""A shard that is a Parquet file: each row is a sample.

What the footer says is known at once: the rows, and mostly which cells are null. Of the data, only keys and the names
that tell extensions are read, one page of each column whose extension nothing else tells, and the levels of columns
with some nulls. Where a cell is, and how large, is found by page when it is looked up; with `full`, beforehand.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import cast

import numpy as np
from numpy.typing import NDArray

from touchfs.catalog.rows.row_keys import RowKeys
from touchfs.errors import FormatError
from touchfs.form.arrays import Npy
from touchfs.form.base import Form
from touchfs.form.plain import BYTES
from touchfs.form.tables.asset import Asset
from touchfs.form.tables.parquet_cell import ParquetCell
from touchfs.form.tables.parquet_list import ParquetList
from touchfs.format import magic
from touchfs.format.arrow.column import numbers_of
from touchfs.progress import reached
from touchfs.shard.options import Options
from touchfs.shard.single import open_source
from touchfs.shard.tables.columns import CellColumn, are_nested, cell_columns, cell_kinds, key_column
from touchfs.shard.tables.extensions import UNKNOWN, cell_extensions
from touchfs.shard.tables.features import classes_of, features_of, labels_of
from touchfs.shard.tables.json_rows import JsonRows
from touchfs.shard.tables.parquet_cells import UNKNOWN_SIZE, FoundCells, find_cells, find_lists
from touchfs.shard.tables.rows import (
    NO_FILE,
    ColumnFiles,
    RowBatch,
    TableRows,
    WholeColumn,
)
from touchfs.shard.tables.videos_beside import with_videos
from touchfs.shard.tables.whole_columns import whole_columns
from touchfs.source.fingerprint import Files
from touchfs.tables.parquet.open_file import open_parquet

# A column of one value takes few bytes; but no small file may claim to have billions of rows.
_ROWS_MAX = 1 << 26


class ParquetShard(TableRows):
    """The rows of the Parquet file at `path`. A batch is a row group."""

    def __init__(self, path: str, options: Options, files: Files) -> None:
        self.path = path
        self.files = files
        self._name = os.path.basename(path)
        self.size = files[self._name].size
        self._file = open_source(path, self._name, files)
        self._table = open_parquet(self._file, options.limits)
        if len(self) > max(8 * self.size, _ROWS_MAX):
            raise FormatError(f"a Parquet file of {self.size:,} bytes does not have {len(self):,} rows", path=path)
        schema = self._table.ipc_schema
        self.features = features_of(options, None, schema.metadata)
        self.problems: list[str] = []
        self.labels = labels_of(schema, self.features, self._name)
        self.classes = classes_of(schema, self.features)
        self._columns = cell_columns(schema, self.features)
        self._key = key_column(schema, options.key_column)
        self.is_nested = are_nested(self._columns, options.layout)
        self._defaults: dict[int, str] = {}
        self._kinds = cell_kinds(self._columns, is_nested=self.is_nested)
        self._rows = JsonRows(self._table, schema, self._columns, self._key, self._kinds, self._name)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

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
            if self._is_list(column):
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
        if not column.is_video:
            return made
        names, modes = (self._table.read_values(number, (*column.path[:-1], child)) for child in column.video)
        return with_videos(
            made,
            self.path,
            names,
            modes,
            lambda row, text: problems.append((first + row, text)),
            lambda extension: self._kinds.number(place, self._name, Asset(), extension),
        )

    def _cell_kind(self, place: int, form: Form, extension: str, is_range: bool) -> int:
        if is_range:
            return self._kinds.number(place, self._name, form, extension)
        return self._kinds.number(
            place, self._name, ParquetCell(self._columns[place].path, form), extension, by_ordinal=True
        )

    def _default(self, place: int) -> str:
        """The extension of a column by the magic of its first cell that is not null and can be read."""
        extension = self._defaults.get(place)
        if extension is None:
            extension, path = UNKNOWN, self._columns[place].path
            for number in range(self._table.batches):
                valid = self._valid(place, number)
                if not valid.any():
                    continue
                row = int(self._table.starts[number]) + int(valid.argmax())
                try:
                    (data,) = self._table.cells(path, range(row, row + 1))
                except FormatError as error:
                    self._add_problem(f"the first {self._columns[place].name!r} is damaged: {error.message}")
                    continue
                extension = magic.extension((data or b"")[: magic.MAGIC_SIZE])
                break
            self._defaults[place] = extension
        return extension
