"""Rows from any batches of any shards become one record batch, in one copy.

Numbers, texts and bytes of mapped files are copied from their addresses. All else goes through `Array.take` of each
batch and `concat_arrays`; never through `Table.take`, which copies whole columns before it takes a row.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from touchfs.caches.backends.arrow.batches import Batches
from touchfs.caches.backends.arrow.mapped_cells import MappedCells, is_number, offset_width
from touchfs.core.errors import UsageError

_TEXT_MAX = 2**31 - 1


# The cells of a shard, the places of rows in the result, and the rows in the table and in their batches
_Mapped: TypeAlias = tuple[MappedCells, NDArray[np.intp], NDArray[np.int64], NDArray[np.int64]]


class Part(NamedTuple):
    """The rows of a result that are in one shard: where they go, and in which rows of which batches they are.

    `table` is what `MappedCells` needs for each of them, None if the shard has none.
    """

    shard: Batches
    places: NDArray[np.intp]
    batches: NDArray[np.int64]
    rows: NDArray[np.int64]
    table: NDArray[np.int64] | None


def gather(schema: pa.Schema, parts: list[Part]) -> pa.RecordBatch:
    """Return the rows of all parts. Raises FormatError, and UsageError if a column of them has over 2 GiB."""
    return pa.RecordBatch.from_arrays([_column(i, kind, parts) for i, kind in enumerate(schema.types)], schema=schema)


def part_of(shard: Batches, places: NDArray[np.intp], rows: NDArray[np.int64]) -> Part:
    """Return the part of a result that is in the `rows` of a shard."""
    batches = np.searchsorted(shard.bounds, rows, "right") - 1
    table = None if shard.cells is None else shard.cells.rows_of(batches)
    return Part(shard, places, batches, rows - shard.bounds[batches], table)


def _column(column: int, kind: pa.DataType, parts: list[Part]) -> pa.Array:
    mapped = [
        (part.shard.cells, part.places, part.table, part.rows)
        for part in parts
        if part.shard.cells is not None and part.table is not None and column in part.shard.cells.types
    ]
    if len(mapped) < len(parts):
        return _taken(column, parts)
    count = sum(len(part.places) for part in parts)
    return _numbers(column, kind, count, mapped) if is_number(kind) else _values(column, kind, count, mapped)


def _numbers(column: int, kind: pa.DataType, count: int, parts: list[_Mapped]) -> pa.Array:
    numbers, valid = np.empty(count, kind.to_pandas_dtype()), np.ones(count, np.bool_)
    for cells, places, table, rows in parts:
        numbers[places], some = cells.numbers(column, table, rows)
        if some is not None:
            valid[places] = some
    data = np.packbits(numbers, bitorder="little") if numbers.dtype == np.bool_ else numbers
    return pa.Array.from_buffers(kind, count, [_bitmap(valid), pa.py_buffer(data)])


def _values(column: int, kind: pa.DataType, count: int, parts: list[_Mapped]) -> pa.Array:
    pieces: list[Any] = [b""] * count
    valid = np.ones(count, np.bool_)
    for cells, places, table, rows in parts:
        found, some = cells.values(column, table, rows)
        if some is not None:
            valid[places] = some
        if len(parts) == 1:
            pieces = found
        else:
            for place, piece in zip(places.tolist(), found, strict=True):
                pieces[place] = piece
    offsets = np.zeros(count + 1, np.int64)
    np.cumsum(np.fromiter(map(len, pieces), np.int64, count), out=offsets[1:])
    width = offset_width(kind)
    if width == 4 and offsets[-1] > _TEXT_MAX:
        raise _too_large(column)
    data = [_bitmap(valid), pa.py_buffer(offsets.astype(f"<i{width}")), pa.py_buffer(b"".join(pieces))]
    return pa.Array.from_buffers(kind, count, data)


def _taken(column: int, parts: list[Part]) -> pa.Array:
    taken, order = [], []
    for shard, places, batches, rows, _ in parts:
        for number in np.unique(batches):
            here = np.flatnonzero(batches == number)
            taken.append(_take(_stored(shard, column, int(number)), rows[here]))
            order.append(places[here])
    try:
        together = taken[0] if len(taken) == 1 else pa.concat_arrays(taken)
    except pa.ArrowInvalid as error:
        raise _too_large(column) from error
    return _take(together, np.argsort(np.concatenate(order)))


def _take(array: pa.Array, rows: NDArray[np.integer[Any]]) -> pa.Array:
    try:
        return array.take(pa.array(rows))
    except pa.ArrowNotImplementedError:  # views, and unions of some kinds
        return pa.concat_arrays([array.slice(row, 1) for row in rows.tolist()])


def _stored(shard: Batches, column: int, number: int) -> pa.Array:
    columns = shard.columns(number)
    return columns[column] if column in columns else shard.batch(number).column(column)


def _bitmap(valid: NDArray[np.bool_]) -> pa.Buffer | None:
    return None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))


def _too_large(column: int) -> UsageError:
    return UsageError(f"column {column} of these rows has over 2 GiB: take fewer rows at a time")
