"""The content of a whole column of numbers of a table, as one .npy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from touchfs.core.errors import FormatError
from touchfs.core.extent import Content, Extent, Memory, Rope, Source
from touchfs.form.arrays import Npy
from touchfs.format import npy
from touchfs.format.arrow.column import ColumnPart
from touchfs.limits import Limits
from touchfs.tables.arrow.decoded_buffer import DecodedBuffer
from touchfs.tables.values.cell_bytes import numbers_in

if TYPE_CHECKING:
    from touchfs.tables.lance.columns import LanceColumns
    from touchfs.tables.parquet.open_file import OpenParquet

# Rows that are decoded at a time.
_ROWS_AT_ONCE = 1 << 16


def column_content(row: Npy, parts: Iterable[ColumnPart], source: Source, limits: Limits) -> Content:
    """The values of a column in all batches, end to end, behind a header. `row` says the shape of each row.

    It costs as much as there are parts; 20,000 of them take some milliseconds. Raises FormatError if they are no rows.
    """
    contents: list[Content] = []
    for part in parts:
        extent = Extent(source, part.offset, part.stored)
        if part.codec is not None:
            extent = Extent(DecodedBuffer(extent, part.codec, limits), 0, part.length)
        contents.append(extent)
    size = sum(content.size for content in contents)
    dtype = np.dtype(row.dtype)
    row_size = dtype.itemsize * prod(row.shape)
    if row_size == 0 or size % row_size:
        raise FormatError(f"a column of {size} bytes whose rows have {row_size}")
    return Rope([Memory(npy.build_header(dtype, (size // row_size, *row.shape))), *contents])


def decoded_column(row: Npy, table: OpenParquet | LanceColumns, column: int) -> Iterator[bytes]:
    """The same of a Parquet file or a Lance dataset, piece by piece. Raises FormatError for rows of another shape."""
    dtype = np.dtype(row.dtype)
    yield npy.build_header(dtype, (table.rows, *row.shape))
    first = 0
    while first < table.rows:
        values = table.read_column(column, first, _ROWS_AT_ONCE)
        count = len(values)
        values, width = numbers_in(values)
        numbers = np.asarray(values)
        if values.null_count or numbers.dtype != dtype or width != prod(row.shape):
            raise FormatError("the column is not the one that was indexed: index with --force")
        yield numbers.tobytes()
        first += count
