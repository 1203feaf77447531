"""A minimal FlatBuffers reader and writer: the subset that Arrow's metadata needs.

A buffer begins with the offset of its root table. A table begins with the *backward* offset of its vtable, which has
the position of each field in the table, indexed by the field's number, its *slot*; 0 means an omitted field, which has
its default. Strings, vectors and other tables are outside the table; the field has the unsigned forward offset to them.
All offsets are relative.

Reading is lazy and in place, a slot at a time, and every offset is checked. Offsets may share targets, so a small
hostile buffer could refer to a big string a thousand times. So all bytes read from a buffer are counted, and may be at
most a few times its size. Writing is depth first, a table before its children, and then the offsets are filled in.

Source: flatbuffers.dev/internals.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from touchfs.core.errors import FormatError

U8 = struct.Struct("<B")
I16 = struct.Struct("<h")
I32 = struct.Struct("<i")
I64 = struct.Struct("<q")

_STEP = struct.Struct("<I")
_BACK = struct.Struct("<i")
_SLOT = struct.Struct("<H")
# size of the vtable, size of the table; the slots follow
_VTABLE = struct.Struct("<HH")
# The largest alignment of any field
_ALIGNMENT = 8
# Sharing is legal, though Arrow's writers do not share; any linear limit bounds the work.
_SHARING_MAX = 4


class Scalar(NamedTuple):
    """A number to write, with its layout."""

    layout: struct.Struct
    value: int


class Structs(NamedTuple):
    """A vector of structs to write; `layout` includes the padding of a struct."""

    layout: struct.Struct
    values: Sequence[tuple[int, ...]]


class Embedded(NamedTuple):
    """A table to write that is at a position of another buffer, which is written as it is."""

    data: bytes
    position: int


Fields = Mapping[int, "Value"]
Value = Scalar | Structs | Embedded | str | Fields | Sequence[Fields]


class FlatTable:
    """A table of a FlatBuffer, for reading. All methods raise FormatError for damaged data."""

    __slots__ = ("_data", "_position", "_region", "_size", "_slots", "_slots_end")

    def __init__(self, region: _Region, position: int) -> None:
        vtable = position - region.unpack(_BACK, position)[0]
        vtable_size, self._size = region.unpack(_VTABLE, vtable)
        # From here on, slots and fields are known to be inside the buffer.
        region.charge(vtable, vtable_size)
        region.charge(position, self._size)
        self._region = region
        self._data = region.data
        self._position = position
        self._slots = vtable + _VTABLE.size
        self._slots_end = vtable + vtable_size

    @property
    def position(self) -> int:
        """The offset of the table in the data of its buffer."""
        return self._position

    def __contains__(self, slot: int) -> bool:
        return self._find(slot, 0) is not None

    def scalar(self, slot: int, layout: struct.Struct, default: int = 0) -> int:
        """Return the number in a slot; `default` if omitted."""
        position = self._find(slot, layout.size)
        if position is None:
            return default
        value: int = layout.unpack_from(self._data, position)[0]
        return value

    def string(self, slot: int) -> str:
        """Return the string in a slot; empty if omitted."""
        start, length = self._vector(slot, 1)
        try:
            return str(self._data[start : start + length], "utf-8")
        except UnicodeDecodeError as error:
            raise FormatError("a text of the metadata is not UTF-8", offset=start) from error

    def text(self, slot: int) -> str:
        """Like `string`, where any bytes are legal: those that are not UTF-8 become surrogate escapes."""
        start, length = self._vector(slot, 1)
        return str(self._data[start : start + length], "utf-8", "surrogateescape")

    def table(self, slot: int) -> FlatTable:
        """Return the table in a slot. Raises FormatError if omitted."""
        position = self._find(slot, _STEP.size)
        if position is None:
            raise FormatError(f"the metadata lacks a table (slot {slot})", offset=self._position)
        return FlatTable(self._region, position + _STEP.unpack_from(self._data, position)[0])

    def tables(self, slot: int) -> Iterator[FlatTable]:
        """Yield the tables of the vector in a slot; none if omitted."""
        start, count = self._vector(slot, _STEP.size)
        for position in range(start, start + count * _STEP.size, _STEP.size):
            yield FlatTable(self._region, position + _STEP.unpack_from(self._data, position)[0])

    def structs(self, slot: int, layout: struct.Struct) -> list[tuple[int, ...]]:
        """Return the structs of the vector in a slot, unpacked; none if omitted."""
        return list(layout.iter_unpack(self.elements(slot, layout.size)))

    def elements(self, slot: int, width: int) -> memoryview:
        """Return the bytes of the vector in a slot, whose elements have `width` bytes; none if omitted."""
        start, count = self._vector(slot, width)
        return self._data[start : start + count * width]

    def count(self, slot: int) -> int:
        """Return the number of elements of the vector in a slot."""
        return self._vector(slot, 1)[1]

    def _find(self, slot: int, width: int) -> int | None:
        place = self._slots + slot * _SLOT.size
        if place + _SLOT.size > self._slots_end:
            return None
        step: int = _SLOT.unpack_from(self._data, place)[0]
        if step == 0:
            return None
        if step + width > self._size:
            raise FormatError("a field of the metadata is outside its table", offset=place)
        return self._position + step

    def _vector(self, slot: int, width: int) -> tuple[int, int]:
        """Return the position and number of a vector's elements, all inside the buffer. An omitted vector is empty."""
        position = self._find(slot, _STEP.size)
        if position is None:
            return 0, 0
        position += _STEP.unpack_from(self._data, position)[0]
        count: int = self._region.unpack(_STEP, position)[0]
        self._region.charge(position, _STEP.size + count * width)
        return position + _STEP.size, count


class _Region:
    """The bytes of one buffer inside a file. Positions are offsets in the file, for errors."""

    __slots__ = ("_end", "_left", "_start", "data")

    def __init__(self, data: memoryview, offset: int, length: int) -> None:
        self.data = data
        self._start = offset
        self._end = offset + length
        self._left = _SHARING_MAX * length

    def unpack(self, layout: struct.Struct, position: int) -> tuple[Any, ...]:
        if position < self._start or position + layout.size > self._end:
            raise self._outside(position)
        return layout.unpack_from(self.data, position)

    def charge(self, position: int, length: int) -> None:
        if position + length > self._end:
            raise self._outside(self._end)
        self._left -= length
        if self._left < 0:
            raise FormatError("the metadata refers to the same bytes over and over", offset=position)

    def _outside(self, position: int) -> FormatError:
        return FormatError("the metadata refers outside itself", offset=min(max(position, self._start), self._end))


def root(data: memoryview, offset: int, length: int) -> FlatTable:
    """Return the root table of the buffer at this range, which must be inside the data. Raises FormatError."""
    region = _Region(data, offset, length)
    return FlatTable(region, offset + region.unpack(_STEP, offset)[0])


def build(fields: Fields) -> bytes:
    """Return a buffer with this root table. It must be stored at a multiple of 8. Raises FormatError for bad text."""
    data = bytearray(_STEP.size)
    _STEP.pack_into(data, 0, _put_table(data, fields))
    return bytes(data)


def _put_table(data: bytearray, fields: Fields) -> int:
    table = bytearray(_BACK.size)
    slots = [0] * (max(fields, default=-1) + 1)
    for slot, value in fields.items():
        layout, number = value if isinstance(value, Scalar) else (_STEP, 0)
        _align(table, layout.size)
        slots[slot] = len(table)
        table += layout.pack(number)
    vtable_size = _VTABLE.size + len(slots) * _SLOT.size
    _align(data, _ALIGNMENT, before=vtable_size)
    data += _VTABLE.pack(vtable_size, len(table)) + b"".join(map(_SLOT.pack, slots))
    position = len(data)
    _BACK.pack_into(table, 0, vtable_size)
    data += table
    for slot, value in fields.items():
        if not isinstance(value, Scalar):
            place = position + slots[slot]
            _STEP.pack_into(data, place, _put(data, value) - place)
    return position


def _put(data: bytearray, value: Structs | Embedded | str | Fields | Sequence[Fields]) -> int:
    if isinstance(value, Mapping):
        return _put_table(data, value)
    if isinstance(value, Embedded):
        _align(data, _ALIGNMENT)
        position = len(data) + value.position
        data += value.data
        return position
    _align(data, _ALIGNMENT, before=_STEP.size)
    position = len(data)
    if isinstance(value, str):
        try:
            text = value.encode("utf-8")
        except UnicodeEncodeError as error:
            raise FormatError(f"not a text: {value!r}", offset=position) from error
        data += _STEP.pack(len(text)) + text + b"\0"
    elif isinstance(value, Structs):
        data += _STEP.pack(len(value.values)) + b"".join(value.layout.pack(*one) for one in value.values)
    else:
        first = position + _STEP.size
        data += _STEP.pack(len(value)) + bytes(len(value) * _STEP.size)
        for place, fields in zip(range(first, len(data), _STEP.size), value, strict=True):
            _STEP.pack_into(data, place, _put_table(data, fields) - place)
    return position


def _align(data: bytearray, alignment: int, before: int = 0) -> None:
    """Pad so that the position after `before` more bytes is aligned."""
    data += bytes(-(len(data) + before) % alignment)
