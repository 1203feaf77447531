"""The bytes of a column of a Lance dataset, cell by cell, and the sizes of cells, as far as this process has read them.

Nobody can ask Lance for the size of a cell without reading it. So reading a cell keeps it, and when rows are asked for
one after another, as a listing with sizes does, those that follow are read with them: up to `AHEAD_ROWS` rows or
`AHEAD_BYTES`. A cell that is asked for at random is read alone.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Hashable

from touchfs.core.errors import FormatError
from touchfs.form.computed import WINDOWS
from touchfs.posix.bounded_cache import BoundedCache
from touchfs.tables.lance.dataset import LanceTable
from touchfs.tables.lance.errors import lance_errors
from touchfs.tables.lance.scan import column_name, is_blob_column
from touchfs.tables.values.cell_bytes import bytes_of

AHEAD_ROWS, AHEAD_BYTES = 256, 1 << 22
# Sizes are kept by groups of rows, 32 KiB each.
_GROUP_ROWS, _GROUPS_KEPT = 4096, 256
_UNKNOWN = -1


class LanceCells:
    """The cells of the column of bytes, of text or of lists of numbers at a path: the numbers of a column and of
    children in it.

    Methods raise the errors of `LanceTable`, and FormatError for a row or column that is not there. Safe for any number
    of threads. `name` identifies the table and the column.
    """

    def __init__(self, name: Hashable, table: LanceTable, path: tuple[int, ...]) -> None:
        self._name = name
        self._table = table
        self._path = path
        self._sizes: BoundedCache[int, array[int]] = BoundedCache(_GROUPS_KEPT)
        self._lock = threading.Lock()
        self._next, self._ahead = 0, 1
        self._mean = float(AHEAD_BYTES)  # of the size of a cell

    def known_size(self, row: int) -> int | None:
        """The size of a cell in bytes, 0 for null, if this process has read it. Never waits."""
        group, i = divmod(row, _GROUP_ROWS)
        sizes = self._sizes.find(group)
        return None if sizes is None or sizes[i] == _UNKNOWN else sizes[i]

    def known(self, row: int) -> bytes | None:
        """The bytes of a cell if this process has them. Never waits."""
        data = WINDOWS.find((self._name, row))
        return None if data is None else bytes(data)

    def size(self, row: int) -> int:
        """The size of a cell in bytes, 0 for null."""
        size = self.known_size(row)
        return len(self.read(row)) if size is None else size

    def read(self, row: int) -> bytes:
        """The bytes of a cell, none for null."""
        data = self.known(row)
        return self._read(row) if data is None else data

    def _read(self, row: int) -> bytes:
        """Read a cell, and some that follow if those before it were read last."""
        count = self._table.rows
        if not 0 <= row < count:
            raise FormatError(f"has no row {row}: index with --force", path=self._table.path)
        with self._lock:
            self._ahead = min(self._ahead * 4, AHEAD_ROWS) if row == self._next else 1
            most = max(min(self._ahead, int(AHEAD_BYTES / max(self._mean, 1.0))), 1)
            rows = range(row, min(row + most, count))
            self._next = rows.stop
        cells = cells_of(self._table, self._path, rows)
        with self._lock:
            self._mean = sum(map(len, cells)) / len(cells)
            for each, data in zip(rows, cells, strict=True):
                group, i = divmod(each, _GROUP_ROWS)
                self._sizes.get(group, _no_sizes)[i] = len(data)
        for each, data in zip(reversed(rows), reversed(cells), strict=True):  # the one that is wanted now stays longest
            WINDOWS.keep((self._name, each), data)
        return cells[0]


def _no_sizes() -> array[int]:
    return array("q", [_UNKNOWN]) * _GROUP_ROWS


def cells_of(table: LanceTable, path: tuple[int, ...], rows: range) -> list[bytes]:
    """The bytes of the cells of a column, none for null. Raises as `LanceCells`."""
    name, is_blob = column_name(table.schema, path, table.path), is_blob_column(table.schema.field(path[0]))
    if is_blob:
        with lance_errors(table.path):
            blobs = table.dataset.read_blobs(name, indices=list(rows), preserve_order=True)
        return [data or b"" for _, data in blobs]
    cells = table.take(rows, [name]).column(0).combine_chunks()
    for _ in path[1:]:
        cells = cells.field(0)  # the only child that was asked for
    return bytes_of(cells, table.path)
