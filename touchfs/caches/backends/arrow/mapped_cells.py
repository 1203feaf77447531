"""Cells of a mapped Arrow file that is not compressed, read at their addresses: numbers, texts and bytes.

`table` has a row for each batch with the places of the buffers of these columns, 16 to 32 bytes a column. So a cell is
read by one or two lookups and a copy, which takes a tenth of the time that pyarrow needs to make objects for it; and
a file of 20,000 batches of one row is as fast as one of 20 batches.

The kernel's own readahead is switched off for this mapping, because that of a device may be 8 MiB for a cell of 8
bytes. Cells of bytes are fetched by 64 KiB instead.
"""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from touchfs.core.errors import FormatError
from touchfs.format.arrow.batch import BatchLayout
from touchfs.format.arrow.schema import IpcField
from touchfs.source.mapped import advise

# The slots of a column in the table: its buffers of validity (or −1), of numbers or offsets, of values, and the size
# of the last.
VALID, FIRST, VALUES, SIZE = range(4)
_SLOTS = 4
# The bytes of a pair of offsets, at most
_UP_TO = np.arange(16)
FETCHED = 16  # the power of two that is fetched at a time


class MappedCells:
    """The cells of the columns in `types`, of a file whose batches have these layouts. `view` is the mapped file.

    `flat` is the table as one sequence: the row of a batch begins at its number times `stride`, and the slots of a
    column in it at `slots`. `fetched` is 1 for each block that was fetched.
    """

    def __init__(self, path: str, view: memoryview, schema: pa.Schema, layouts: Sequence[BatchLayout]) -> None:
        self._path = path
        self.view = view
        self._bytes = np.frombuffer(view, np.uint8)
        self.fetched = bytearray((len(view) >> FETCHED) + 1)
        self._blocks = np.frombuffer(self.fetched, np.uint8)
        self.types = {
            column: kind
            for column, kind in enumerate(schema.types)
            if is_number(kind) or offset_width(kind) is not None
        }
        rows = np.array([layout.rows for layout in layouts], np.int64)
        tables = [self._places(layouts, rows, column) for column in self.types]
        self._table = np.concatenate(tables, axis=1) if tables else np.empty((len(rows), 0), np.int64)
        self.flat = self._table.reshape(-1).data
        self.slots = {column: _SLOTS * i for i, column in enumerate(self.types)}
        self.stride = self._table.shape[1]

    def rows_of(self, batches: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the rows of the table for some batches, which `numbers` and `values` take: shape (n, stride)."""
        table: NDArray[np.int64] = self._table[batches]
        return table

    def numbers(
        self, column: int, table: NDArray[np.int64], rows: NDArray[np.int64]
    ) -> tuple[NDArray[Any], NDArray[np.bool_] | None]:
        """Return the numbers of a column in rows of batches, shape (n,), and which are not null; None if all."""
        slot, kind = self.slots[column], self.types[column]
        first, valid = table[:, slot + FIRST], self._validity(table[:, slot + VALID], rows)
        if pa.types.is_boolean(kind):
            return self._bits(first, rows), valid
        dtype = np.dtype(kind.to_pandas_dtype())
        return self._gather(first + rows * dtype.itemsize, dtype.itemsize).view(dtype)[:, 0], valid

    def values(
        self, column: int, table: NDArray[np.int64], rows: NDArray[np.int64]
    ) -> tuple[list[memoryview], NDArray[np.bool_] | None]:
        """Return the bytes of a column in rows of batches, as `numbers`. Raises FormatError."""
        slot, width = self.slots[column], offset_width(self.types[column]) or 0
        pairs = self._gather(table[:, slot + FIRST] + rows * width, 2 * width).view(f"<i{width}").astype(np.int64)
        starts, ends = pairs[:, 0], pairs[:, 1]
        valid = self._validity(table[:, slot + VALID], rows)
        if valid is not None:
            ends = np.where(valid, ends, starts)
        if (starts < 0).any() or (ends < starts).any() or (ends > table[:, slot + SIZE]).any():
            raise self.damaged(column)
        starts, ends = starts + table[:, slot + VALUES], ends + table[:, slot + VALUES]
        for i in np.flatnonzero((self._blocks[starts >> FETCHED] & self._blocks[ends >> FETCHED]) == 0).tolist():
            self.fetch(starts.item(i), ends.item(i))
        view = self.view
        return [view[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)], valid

    def _places(self, layouts: Sequence[BatchLayout], rows: NDArray[np.int64], column: int) -> NDArray[np.int64]:
        """Return the rows of the table for a column. Raises FormatError if a buffer is too short for its rows."""
        kind = self.types[column]
        table = np.full((len(layouts), _SLOTS), -1, np.int64)
        needed = np.empty((len(layouts), 2), np.int64)
        found = np.empty((len(layouts), 2), np.int64)
        width = offset_width(kind)
        for number, layout in enumerate(layouts):
            field: IpcField = layout.schema.fields[column]
            place, has_nulls = table[number], layout.nulls(field) > 0
            valid, first = layout.buffer(field, 0), layout.buffer(field, 1)
            place[FIRST], found[number] = first.offset, (valid.length if has_nulls else len(self.view), first.length)
            if has_nulls:
                place[VALID] = valid.offset
            if width is not None:
                place[VALUES:] = layout.buffer(field, 2)
        needed[:, 0] = -(-rows // 8)
        if width is None:
            needed[:, 1] = -(-rows * kind.bit_width // 8)
        else:
            needed[:, 1] = np.where(rows, (rows + 1) * width, 0)
        if (found < needed).any() or (table[:, FIRST] + needed[:, 1] > len(self.view)).any():
            raise FormatError(f"column {column} of an Arrow batch is shorter than its rows", path=self._path)
        return table

    def fetch(self, start: int, end: int) -> None:
        """Have the kernel read a range at once, instead of a page at each fault."""
        fetched = self.fetched
        for block in range(start >> FETCHED, (end >> FETCHED) + 1):
            if not fetched[block]:
                fetched[block] = 1
                advise(self.view[block << FETCHED : (block + 1) << FETCHED], mmap.MADV_WILLNEED)

    def _validity(self, bits: NDArray[np.int64], rows: NDArray[np.int64]) -> NDArray[np.bool_] | None:
        if bits.max() < 0:
            return None
        return np.where(bits < 0, True, self._bits(np.maximum(bits, 0), rows))

    def _bits(self, places: NDArray[np.int64], rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        return (self._bytes[places + (rows >> 3)] >> (rows & 7) & 1).astype(np.bool_)

    def _gather(self, places: NDArray[np.int64], width: int) -> NDArray[np.uint8]:
        """Return `width` bytes at each of some places, which need not be aligned: shape (n, width)."""
        gathered: NDArray[np.uint8] = self._bytes[places[:, np.newaxis] + _UP_TO[:width]]
        return gathered

    def has_nulls(self, column: int) -> bool:
        """True if a batch has nulls in a column."""
        return bool((self._table[:, self.slots[column] + VALID] >= 0).any())

    def damaged(self, column: int) -> FormatError:
        """Return the error for offsets of a column that lead out of its buffer."""
        return FormatError(f"the offsets of column {column} are out of range or decrease", path=self._path)

    def not_text(self, column: int) -> FormatError:
        """Return the error for a text of a column that is not UTF-8."""
        return FormatError(f"column {column} has a text that is not UTF-8", path=self._path)


def is_number(kind: pa.DataType) -> bool:
    """True for integers, floats and booleans."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))


def offset_width(kind: pa.DataType) -> int | None:
    """Return the width of the offsets of texts or bytes, or None for another type."""
    if pa.types.is_binary(kind) or pa.types.is_string(kind):
        return 4
    return 8 if pa.types.is_large_binary(kind) or pa.types.is_large_string(kind) else None
