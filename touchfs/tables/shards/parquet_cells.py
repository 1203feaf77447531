"""Find the byte ranges and sizes of the cells of a column in a row group of a Parquet file, where they can be known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from touchfs.core.errors import FormatError
from touchfs.format import magic
from touchfs.source.store import StoredFile
from touchfs.tables.parquet.layout.cell_ranges import CellRanges
from touchfs.tables.parquet.open_file import OpenParquet
from touchfs.tables.values.cell_bytes import numbers_in
from touchfs.tables.values.field_paths import Path

# Of a column of lists, whose nulls are looked for.
_ROWS_AT_ONCE = 4096


# The size of a cell that is not known.
UNKNOWN_SIZE = -1


@dataclass(frozen=True, slots=True, eq=False)
class FoundCells:
    """The cells of a column in a row group. An element of each array is for a row.

    With `is_range`, the cells are ranges of the file; else `offset` and `length` are 0. A `size` may be `UNKNOWN_SIZE`.
    `head` returns the first bytes of the cell of a row; None if nothing is known of any cell.
    """

    offset: NDArray[np.int64]
    length: NDArray[np.int64]
    size: NDArray[np.int64]
    is_range: bool = False
    head: Callable[[int], bytes] | None = None

    @classmethod
    def unknown(cls, rows: int) -> FoundCells:
        """Cells of which nothing is known."""
        offset, length, size = np.zeros((3, rows), np.int64)
        return cls(offset, length, size + UNKNOWN_SIZE)


def find_cells(
    table: OpenParquet, source: StoredFile, path: Path, batch: int, problem: Callable[[int, str], None]
) -> FoundCells:
    """Find the cells of bytes of a row group. Reads the column, unless its cells are ranges of the file.

    `problem` gets each row in a damaged page, and what is wrong. Of its cell, nothing is known.
    """
    first, rows = int(table.starts[batch]), int(table.starts[batch + 1] - table.starts[batch])
    found, heads, row = FoundCells.unknown(rows), [b""] * rows, 0
    try:
        ranges = table.cell_ranges(path, batch)
    except FormatError:  # of one page at least: those of others may be sound
        ranges = None
    if ranges is not None:
        return _in_file(ranges, source)
    while row < rows:
        stop = rows
        try:
            stop = min(table.page_rows(path, first + row).stop - first, rows)
            cells = table.cells(path, range(first + row, first + stop))
        except FormatError as error:
            for damaged in range(row, stop):
                problem(damaged, error.message)
        else:
            found.size[row:stop] = [len(cell or b"") for cell in cells]
            heads[row:stop] = [(cell or b"")[: magic.MAGIC_SIZE] for cell in cells]
        row = stop
    return replace(found, head=heads.__getitem__)


def _in_file(ranges: CellRanges, source: StoredFile) -> FoundCells:
    """Cells that are ranges of the file, of which a head is read when it is asked for."""

    def head(row: int) -> bytes:
        return bytes(source.read(int(ranges.offsets[row]), min(int(ranges.lengths[row]), magic.MAGIC_SIZE)))

    return FoundCells(ranges.offsets, ranges.lengths, ranges.lengths, True, head)


def find_lists(table: OpenParquet, column: int, batch: int) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Find the rows of a row group with a list of numbers without nulls, and those with some: bool[rows] each.

    If the footer does not say that nothing is null, this reads the column.
    """
    first, rows = int(table.starts[batch]), int(table.starts[batch + 1] - table.starts[batch])
    if table.nulls((column,), batch) == 0:
        return np.ones(rows, np.bool_), np.zeros(rows, np.bool_)
    others = [(other,) for other in range(len(table.ipc_schema.fields)) if other != column]
    valid, partial = np.zeros(rows, np.bool_), np.zeros(rows, np.bool_)
    row = 0
    while row < rows:
        cells = table.read(first + row, min(_ROWS_AT_ONCE, rows - row), others).column(0)
        part = slice(row, row + len(cells))
        valid[part] = np.asarray(cells.is_valid())
        numbers, width = numbers_in(cells)
        has_nulls = ~np.asarray(numbers.is_valid()).reshape(-1, width).all(axis=1)
        partial[part] = valid[part] & has_nulls
        valid[part] &= ~has_nulls
        row = part.stop
    return valid, partial
