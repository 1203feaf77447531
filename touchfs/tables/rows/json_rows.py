"""The rows of an Arrow or Parquet file as JSON, without the cells that are files."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from touchfs.core.errors import FormatError
from touchfs.format.arrow.schema import IpcSchema
from touchfs.tables.rows.columns import CellColumn, are_only_files, column_names
from touchfs.tables.rows.row import Row
from touchfs.tables.rows.rows import NO_FILE, ROW, CellKinds, ColumnFiles, without_files
from touchfs.tables.values.field_paths import Path, wanted_columns
from touchfs.tables.values.partition import with_partition, without_columns

# Rows whose JSON is in memory at a time, to know its size.
_ROWS_AT_ONCE = 64


class JsonTable(Protocol):
    """A table whose rows can be had as JSON."""

    def json_rows(self, first: int, count: int, left_out: Collection[Path] = ()) -> list[bytes]:
        """The rows from `first` on as JSON lines, without the cells at some paths."""
        ...


class JsonRows:
    """The files with the rows of a table. `source` is the file of the shard that it is, and `partition` has the values
    of its directories, which are shown in each row.
    """

    def __init__(
        self,
        table: JsonTable,
        schema: IpcSchema,
        columns: Sequence[CellColumn],
        key: int | None,
        kinds: CellKinds,
        source: str,
        partition: str,
    ) -> None:
        self._table = table
        self._schema = schema
        self._columns = columns
        self._kinds = kinds
        self._source = source
        self._partition = without_columns(partition, column_names(schema))
        self._are_there = not are_only_files(schema, columns, key) or bool(self._partition)

    def files(
        self,
        first: int,
        partial: NDArray[np.bool_],
        columns: Sequence[ColumnFiles],
        problems: list[tuple[int, str]],
        *,
        full: bool,
    ) -> ColumnFiles:
        """The JSON of the rows from `first` on. `partial` says of each of `columns`, whose cells are files, and of each
        row whether the cell is a list with some nulls, which is no file: it is in the JSON. With `full`, the sizes are
        found, and `problems` gets the rows that cannot be read.

        A row without any other file has a JSON in any case, with all its columns.
        """
        rows = partial.shape[1]
        kind, size, nothing = np.full(rows, NO_FILE, np.int16), np.zeros(rows, np.int64), np.zeros(rows, np.int64)
        files = ColumnFiles(ROW, self._kinds.of(-1), kind, nothing, nothing, size)
        shown, of_rows = np.unique(partial, axis=1, return_inverse=True) if partial.any() else (partial[:, :1], None)
        for i in range(shown.shape[1]):
            in_json = shown[:, i].tolist()
            left_out = (each.path for each, is_in in zip(self._columns, in_json, strict=True) if not is_in)
            paths = tuple(dict.fromkeys(left_out))  # one for all elements of a list
            mask = np.ones(rows, np.bool_) if of_rows is None else of_rows.reshape(-1) == i
            if not (self._are_there and (self._partition or wanted_columns(self._schema, frozenset(paths)))):
                mask, paths = mask & without_files(columns), ()
            if not mask.any():
                continue
            kind[mask] = self._kinds.row_number(self._source, Row(paths, self._partition))
            if full:
                for start in range(0, rows, _ROWS_AT_ONCE):
                    part = slice(start, min(start + _ROWS_AT_ONCE, rows))
                    try:
                        texts = self._table.json_rows(first + start, part.stop - start, paths)
                        texts = with_partition(texts, self._partition)
                    except FormatError as error:
                        damaged = np.flatnonzero(mask[part]) + first + start
                        problems += [(row, f"its JSON: {error.message}") for row in damaged.tolist()]
                        continue
                    size[part] = np.where(mask[part], [*map(len, texts)], size[part])
        return files
