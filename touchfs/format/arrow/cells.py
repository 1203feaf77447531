"""Find the byte range of each cell of a column in an Arrow file. The cells are neither read nor mapped.

A cell's bytes are those of a value of `binary`, `utf8`, their large and view types, `fixed_size_binary`, a number of a
fixed width, or a `fixed_size_list` of such numbers. The column, or child of structs, is named by a path (see
`IpcSchema.path`). Only the buffers of offsets, of views and of validity are read, and of those only the rows needed.

Buffers of a compressed batch are compressed one by one. Then the places are in the decompressed buffers.

Source: arrow.apache.org/docs/format/Columnar.html
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from touchfs.core.errors import FormatError
from touchfs.core.extent import Buffer, Reads
from touchfs.format.arrow.batch import BatchLayout, BufferRange
from touchfs.format.arrow.compression import SIZE, decompressed_range, parse_size
from touchfs.format.arrow.metadata import Kind
from touchfs.format.arrow.schema import LIST_WIDTHS, OFFSET_WIDTHS, VIEWS, IpcField
from touchfs.limits import LIMITS, too_large

# A view: the length, then either up to 12 bytes, or 4 bytes, the number of a buffer, and the offset in it.
_VIEW = np.dtype([("length", "<i4"), ("prefix", "<i4"), ("buffer", "<i4"), ("offset", "<i4")])
_SHORT_MAX, _SHORT_AT = 12, 4
# The number, instead of that of a compressed buffer, of cells that are in the file
IN_FILE = -1


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """The places of the cells of some rows. `valid` is False where the cell, or a parent, is null: its length is 0.

    `buffers` is None, and offsets are those in the file; so it is for all batches that are not compressed. Otherwise
    `buffers` has a number for each row: −1 if the cell is in the file, or a row of the table `ranges`, which has the
    offset in the file and the length of a buffer that `codec` compressed. The cell's offset is that in the decompressed
    buffer.

    `partial` is None, or True for those rows of a `fixed_size_list` that have some nulls among their numbers: the bytes
    of such a cell do not say which.
    """

    offsets: NDArray[np.int64]
    lengths: NDArray[np.int64]
    valid: NDArray[np.bool_]
    partial: NDArray[np.bool_] | None = None
    codec: str | None = None
    buffers: NDArray[np.int64] | None = None
    ranges: NDArray[np.int64] | None = None


def levels(field: IpcField) -> list[tuple[IpcField, int]]:
    """Return a field and, if it is a `fixed_size_list`, what is in it, each with the number of its values in a row."""
    found = [(field, 1)]
    while field.codes is None and field.type.kind == Kind.FIXED_SIZE_LIST:
        size = field.type.size
        (field,) = field.children
        found.append((field, found[-1][1] * size))
    return found


def value_width(field: IpcField) -> int | None:
    """Return the bytes of each value of a type of fixed width, or of each list of such values; None for other types."""
    field, each = levels(field)[-1]
    if field.codes is not None:
        return None
    if field.type.kind == Kind.FIXED_SIZE_BINARY or (field.type.bits and field.type.bits % 8 == 0):
        return each * (field.type.bits // 8)
    return None


def has_cells(chain: Sequence[IpcField]) -> bool:
    """True if the values of the last of these fields, each a child of the one before, are byte ranges of the file."""
    *parents, last = chain
    if last.codes is not None or any(each.type.kind != Kind.STRUCT or each.codes is not None for each in parents):
        return False
    return last.type.kind in OFFSET_WIDTHS or last.type.kind in VIEWS or value_width(last) is not None


def cells(
    layout: BatchLayout, path: Sequence[int], first: int = 0, count: int | None = None, limit: int = LIMITS.decoded
) -> Reads[Cells]:
    """Find the cells of `count` rows from `first` on, by default of all after it, of the field at a path.

    `limit` is the largest buffer in bytes that is decompressed. Raises FormatError for a damaged file, and for a field
    that has no cells (see `has_cells`).
    """
    chain = layout.schema.chain(path)
    count = layout.rows - first if count is None else count
    rows = _Rows(layout, first, count, limit)
    if not has_cells(chain) or not 0 <= first <= first + count <= layout.rows:
        raise rows.error(f"rows {first} to {first + count} of {layout.rows} of column {chain[0].name!r} have no cells")
    for field in chain:
        layout.check_count(field)
    return (yield from _of_chain(rows, chain))


def _of_chain(rows: _Rows, chain: Sequence[IpcField]) -> Reads[Cells]:
    """The cells of the last of these fields, each a child of the one before, of which all have the rows."""
    valid = np.ones(rows.count, np.bool_)
    for field in chain:
        if rows.layout.nulls(field):
            valid &= yield from rows.validity(field)
    if field.type.kind in OFFSET_WIDTHS:
        return (yield from _by_offsets(rows, field, valid))
    if field.type.kind in VIEWS:
        return (yield from _by_views(rows, field, valid))
    return (yield from _by_width(rows, field, valid))


@dataclass(frozen=True, slots=True, eq=False)
class ListCells:
    """The cells in the lists of some rows: `count` of them for each row, from `start` on; of a null list, none."""

    start: NDArray[np.int64]
    count: NDArray[np.int64]
    cells: Cells

    def at(self, item: int) -> Cells:
        """The element of this number of each row; not valid where the list has not as many."""
        has_it = self.count > item
        place = np.where(has_it, self.start + item, 0)
        found = self.cells
        if not has_it.any():
            nothing = np.zeros(len(place), np.int64)
            return Cells(nothing, nothing, has_it)
        valid = has_it & found.valid[place]
        return Cells(
            found.offsets[place],
            np.where(valid, found.lengths[place], 0),
            valid,
            None,
            found.codec,
            None if found.buffers is None else found.buffers[place],
            found.ranges,
        )


def list_cells(layout: BatchLayout, path: Sequence[int], limit: int = LIMITS.decoded) -> Reads[ListCells]:
    """Find the cells in the lists of all rows. The path leads from a column of lists through their elements.

    Raises as `cells`.
    """
    outer, *chain = layout.schema.chain(path)
    rows = _Rows(layout, 0, layout.rows, limit)
    width = LIST_WIDTHS.get(outer.type.kind)
    if width is None or outer.codes is not None or not has_cells(chain):
        raise rows.error(f"column {outer.name!r} has no lists of cells")
    layout.check_count(outer)
    data = (yield from rows.read(outer, 1, 0, (layout.rows + 1) * width)) if layout.rows else bytes(width)
    offsets = np.frombuffer(data, f"<i{width}").astype(np.int64)
    first, end = int(offsets[0]), int(offsets[-1])
    if (np.diff(offsets) < 0).any() or first < 0 or any(layout.count(field) < end for field in chain):
        raise rows.error(f"a list of column {outer.name!r} is outside its column")
    count = np.diff(offsets)
    if layout.nulls(outer):
        count = np.where((yield from rows.validity(outer)), count, 0)
    return ListCells(
        offsets[:-1] - first, count, (yield from _of_chain(_Rows(layout, first, end - first, limit), chain))
    )


def _by_offsets(rows: _Rows, field: IpcField, valid: NDArray[np.bool_]) -> Reads[Cells]:
    width, count = OFFSET_WIDTHS[field.type.kind], rows.count
    # The format allows an empty column to omit its only offset.
    data = (yield from rows.read(field, 1, rows.first * width, (count + 1) * width)) if count else bytes(width)
    offsets = np.frombuffer(data, f"<i{width}").astype(np.int64)
    starts, ends = offsets[:-1], offsets[1:]
    if (ends < starts).any():
        raise rows.error(f"the offsets of column {field.name!r} decrease")
    buffer = rows.layout.buffer(field, 2)
    values = yield from rows.open(buffer)
    if offsets[0] < 0 or offsets[-1] > values.size:
        raise rows.error(f"a cell of column {field.name!r} is outside its column")
    return rows.place(buffer, values, starts, ends - starts, valid)


def _by_width(rows: _Rows, field: IpcField, valid: NDArray[np.bool_]) -> Reads[Cells]:
    width, partial = value_width(field) or 0, np.zeros(rows.count, np.bool_)
    elements = levels(field)[1:]
    for field, each in elements:
        rows.layout.check_count(field, each)
    buffer = rows.layout.buffer(field, 1)
    values = yield from rows.open(buffer)
    if (rows.first + rows.count) * width > values.size:
        raise rows.error(f"a cell of column {field.name!r} is outside its column")
    starts = np.arange(rows.first, rows.first + rows.count, dtype=np.int64) * width
    for field, each in elements:
        if rows.layout.nulls(field):
            partial |= ~(yield from rows.validity(field, each)).reshape(rows.count, each).all(axis=1) & valid
    found = rows.place(buffer, values, starts, np.full(rows.count, width), valid)
    return replace(found, partial=partial) if partial.any() else found


def _by_views(rows: _Rows, field: IpcField, valid: NDArray[np.bool_]) -> Reads[Cells]:
    width = _VIEW.itemsize
    data = yield from rows.read(field, 1, rows.first * width, rows.count * width)
    views = np.where(valid, np.frombuffer(data, _VIEW), np.zeros((), _VIEW))
    lengths, is_short = views["length"].astype(np.int64), views["length"] <= _SHORT_MAX
    # The bytes of short values are in the buffer of views itself.
    ranges = [rows.layout.buffer(field, 1), *rows.layout.variadic_buffers(field)]
    own = np.arange(rows.first, rows.first + rows.count, dtype=np.int64) * width + _SHORT_AT
    starts = np.where(is_short, own, views["offset"])
    buffers = np.where(is_short, 0, views["buffer"].astype(np.int64) + 1)
    if ((buffers < 0) | (buffers >= len(ranges))).any():
        raise rows.error("a view names a buffer that does not exist")
    used = np.unique(buffers).tolist()
    table = np.zeros((len(ranges), len(_ValueBuffer._fields)), np.int64)
    for number in used:
        table[number] = yield from rows.open(ranges[number])
    at, sizes, is_packed = table[buffers].T
    if ((starts < 0) | (lengths < 0) | (starts > sizes - lengths)).any():
        raise rows.error(f"a cell of column {field.name!r} is outside its column")
    if not is_packed.any():
        return Cells(starts + at, lengths, valid)
    return Cells(
        starts + at, lengths, valid, None, rows.layout.codec, np.where(is_packed, buffers, IN_FILE), np.array(ranges)
    )


class _ValueBuffer(NamedTuple):
    """A buffer with values: where it begins in the file, its size when decompressed, and whether it is compressed.

    A compressed one begins at 0.
    """

    start: int
    size: int
    is_packed: bool


@dataclass(frozen=True, slots=True)
class _Rows:
    """The rows of a batch that are looked for, and reads of what is stored about them."""

    layout: BatchLayout
    first: int
    count: int
    limit: int

    def validity(self, field: IpcField, each: int = 1) -> Reads[NDArray[np.bool_]]:
        """Read which values of a field are not null, `each` of them for a row."""
        first, count = self.first * each, self.count * each
        start = first // 8
        data = yield from self.read(field, 0, start, (first + count + 7) // 8 - start)
        bits = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little")
        return bits[first - 8 * start :][:count].view(np.bool_)

    def read(self, field: IpcField, number: int, start: int, length: int) -> Reads[Buffer]:
        """Read a range of a buffer of a field, or of what the buffer decompresses to."""
        offset, size = self.layout.buffer(field, number)
        if length == 0:
            return b""
        if self.layout.codec is None:
            if start + length > size:
                raise self._short(field, size)
            return (yield offset + start, length)
        if size > self.limit:
            raise self.error(f"column {field.name!r} is not read: {too_large(self.limit)}")
        data = yield offset, size
        try:
            found = decompressed_range(self.layout.codec, data, start, length, self.limit)
        except FormatError as error:
            error.offset = offset
            raise
        if len(found) < length:
            raise self._short(field, start + len(found))
        return found

    def open(self, buffer: BufferRange) -> Reads[_ValueBuffer]:
        """Find where the values of a buffer are, and how many bytes they have."""
        offset, length = buffer
        if self.layout.codec is None:
            return _ValueBuffer(offset, length, False)
        data = yield offset, min(length, SIZE.size)
        try:
            size, is_packed = parse_size(data, length, self.limit)
        except FormatError as error:
            error.offset = offset
            raise
        return _ValueBuffer(0 if is_packed else offset + length - size, size, is_packed)

    def place(
        self,
        buffer: BufferRange,
        values: _ValueBuffer,
        starts: NDArray[np.int64],
        lengths: NDArray[np.int64],
        valid: NDArray[np.bool_],
    ) -> Cells:
        if not valid.all():
            lengths = np.where(valid, lengths, 0)
        if not values.is_packed:
            return Cells(starts + values.start, lengths, valid)
        ranges = np.array([buffer])
        return Cells(starts, lengths, valid, None, self.layout.codec, np.zeros(self.count, np.int64), ranges)

    def error(self, message: str) -> FormatError:
        return FormatError(message, offset=self.layout.place.offset)

    def _short(self, field: IpcField, size: int) -> FormatError:
        return self.error(f"column {field.name!r} has only {size} bytes of offsets or validity")
