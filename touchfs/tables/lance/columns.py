"""Whole columns of a Lance dataset, some rows at a time. Lance runs in this process: see `open`."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from touchfs.core.errors import FormatError
from touchfs.tables.lance.dataset import LanceTable
from touchfs.tables.lance.json_rows import take_rows
from touchfs.tables.values.field_paths import Path
from touchfs.tables.values.json_values import json_values
from touchfs.tables.values.pyarrow_errors import pyarrow_errors

if TYPE_CHECKING:
    import pyarrow

ROWS_AT_ONCE = 1024


class LanceColumns:
    """The columns of a version of a dataset. Methods raise the errors of `LanceTable`."""

    def __init__(self, table: LanceTable) -> None:
        self._table = table

    @property
    def rows(self) -> int:
        return self._table.rows

    @property
    def batches(self) -> int:
        """The number of batches: `ROWS_AT_ONCE` rows each, and the last one the rest."""
        return -(-self.rows // ROWS_AT_ONCE)

    def json_column(self, batch: int, column: int, left_out: Collection[Path] = ()) -> Iterator[list[Any]]:
        """Yield the values of a column in a batch as `json.dumps` takes them, without the cells at some paths."""
        values = self._read(column, batch, left_out)
        with pyarrow_errors("values of a Lance dataset"):
            from touchfs.tables.values.sound import sound

            made = json_values(sound(values))
        yield made

    def read_column(self, column: int, first: int, count: int) -> pyarrow.Array:
        """The values of a column in rows from `first` on, fewer at the end."""
        return self._read(column, first // ROWS_AT_ONCE, ())[first % ROWS_AT_ONCE :][:count]

    def integers(self, column: int) -> NDArray[np.int64]:
        """The values of a column of integers, −1 for nulls."""
        parts = [np.zeros(0, np.int64)]
        for batch in range(self.batches):
            values = self._read(column, batch, ())
            with pyarrow_errors("values of a Lance dataset"):
                parts.append(values.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64))
        return np.concatenate(parts)

    def _read(self, column: int, batch: int, left_out: Collection[Path]) -> pyarrow.Array:
        if column >= len(self._table.schema):
            raise FormatError("has no such column: index with --force", path=self._table.path)
        others = {(other,) for other in range(len(self._table.schema)) if other != column}
        taken = take_rows(self._table, batch * ROWS_AT_ONCE, ROWS_AT_ONCE, others.union(left_out))
        if taken is None:
            raise FormatError("has no values in this column: index with --force", path=self._table.path)
        return taken.column(0).combine_chunks()
