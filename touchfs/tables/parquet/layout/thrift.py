"""Thrift's compact protocol, as far as Parquet's metadata use it: reading with bounds, and building.

A struct is a sequence of fields, each a byte with its type and the distance of its number from the one before, then its
value. Integers are zigzag varints; bytes and lists begin with a length. A byte 0 ends the struct.

Source: github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from touchfs.core.errors import FormatError
from touchfs.core.extent import Buffer

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT, UUID = range(1, 14)
INTEGERS = (I16, I32, I64)
# Parquet's own metadata nest 7 deep; schemas are flat lists.
_NESTING_MAX = 32
_VARINT_MAX = 10
_FIXED = {BYTE: 1, DOUBLE: 8, UUID: 16}
_SHORT_LIST = 15


class TruncatedError(FormatError):
    """The metadata go on after the bytes that were read."""


class CompactReader:
    """Reads values one after the other, from `position` on. Raises FormatError, TruncatedError at the end of the data.

    Errors have offsets in the file, if `start` is the place of the data in it.
    """

    __slots__ = ("_data", "_start", "position")

    def __init__(self, data: Buffer, start: int = 0, position: int = 0) -> None:
        self._data = bytes(data)
        self._start = start
        self.position = position

    def fields(self) -> Iterator[tuple[int, int]]:
        """Yield the number and the type of each field of a struct. The caller reads or skips the value of each."""
        number = 0
        while head := self._byte():
            kind, delta = head & 0x0F, head >> 4
            number = number + delta if delta else self.integer()
            yield number, kind

    def integer(self) -> int:
        """Read an integer of at most 64 bits."""
        value = self.unsigned()
        return (value >> 1) ^ -(value & 1)

    def take(self, length: int) -> bytes:
        """Read so many bytes."""
        return self._data[self._advance(length) : self.position]

    def number(self, kind: int) -> int:
        """Read an integer that must have the type of one."""
        if kind not in INTEGERS:
            raise self.error(f"a value of type {kind} where a number should be")
        return self.integer()

    def flag(self, kind: int) -> bool:
        """The value of a field of booleans, which its type says."""
        if kind not in (TRUE, FALSE):
            raise self.error(f"a value of type {kind} where true or false should be")
        return kind == TRUE

    def binary(self, kind: int) -> bytes:
        """Read bytes."""
        if kind != BINARY:
            raise self.error(f"a value of type {kind} where bytes should be")
        return self.take(self.unsigned())

    def text(self, kind: int) -> str:
        """Read text. What is no UTF-8 is replaced."""
        return self.binary(kind).decode("utf-8", "replace")

    def elements(self, kind: int, of: int) -> int:
        """Read the head of a list of elements of a type, and return their number: at most one for each byte left."""
        if kind != LIST:
            raise self.error(f"a value of type {kind} where a list should be")
        count, found = self._list_head()
        if count and found != of and not {found, of} <= {TRUE, FALSE}:
            raise self.error(f"a list of type {found} where one of type {of} should be")
        return count

    def struct(self, kind: int) -> Iterator[tuple[int, int]]:
        """Like `fields`, of a value that must be a struct."""
        if kind != STRUCT:
            raise self.error(f"a value of type {kind} where a struct should be")
        return self.fields()

    def between(self, start: int, end: int) -> bytes:
        """The bytes from one position to another."""
        return self._data[start:end]

    def skip(self, kind: int, depth: int = 0) -> None:
        """Skip a value of a field."""
        if kind in (TRUE, FALSE):
            return
        if kind in INTEGERS:
            self.unsigned()
        elif kind == BINARY:
            self._advance(self.unsigned())
        elif kind in _FIXED:
            self._advance(_FIXED[kind])
        elif depth == _NESTING_MAX:
            raise self.error(f"metadata nested over {_NESTING_MAX} deep")
        elif kind == STRUCT:
            for _, inner in self.fields():
                self.skip(inner, depth + 1)
        elif kind in (LIST, SET):
            count, inner = self._list_head()
            self._skip_elements(count, (inner,), depth)
        elif kind == MAP:
            if count := self.unsigned():
                kinds = self._byte()
                self._skip_elements(count, (kinds >> 4, kinds & 0x0F), depth)
        else:
            raise self.error(f"metadata of an unknown type {kind}")

    def error(self, message: str) -> FormatError:
        """An error at the position."""
        return FormatError(f"damaged Parquet metadata: {message}", offset=self._start + self.position)

    def _skip_elements(self, count: int, kinds: Sequence[int], depth: int) -> None:
        if count > len(self._data) - self.position:
            raise self._truncated()
        for _ in range(count):
            for kind in kinds:
                if kind in (TRUE, FALSE):  # in a list it is a byte
                    self._advance(1)
                else:
                    self.skip(kind, depth + 1)

    def _list_head(self) -> tuple[int, int]:
        head = self._byte()
        count = head >> 4
        if count == _SHORT_LIST:
            count = self.unsigned()
        if count > len(self._data) - self.position:  # an element has at least a byte
            raise self._truncated()
        return count, head & 0x0F

    def unsigned(self) -> int:
        """Read an integer without a sign, as lengths are."""
        data, position = self._data, self.position
        value = shift = 0
        for _ in range(_VARINT_MAX):
            if position >= len(data):
                raise self._truncated()
            byte = data[position]
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                self.position = position
                return value & 0xFFFF_FFFF_FFFF_FFFF
            shift += 7
        raise self.error("a number of over 64 bits")

    def _byte(self) -> int:
        return self._data[self._advance(1)]

    def _advance(self, length: int) -> int:
        """Move the position on, and return where it was."""
        start = self.position
        if length > len(self._data) - start:
            raise self._truncated()
        self.position = start + length
        return start

    def _truncated(self) -> TruncatedError:
        return TruncatedError("Parquet metadata are cut off", offset=self._start + len(self._data))


def build_struct(fields: Sequence[tuple[int, int, bytes]]) -> bytes:
    """A struct of fields in order: number, type, and the bytes of the value."""
    parts, before = [], 0
    for number, kind, value in fields:
        delta = number - before
        head = bytes([delta << 4 | kind]) if 0 < delta < 16 else bytes([kind]) + build_integer(number)
        parts += [head, value]
        before = number
    return b"".join([*parts, b"\0"])


def build_integer(value: int) -> bytes:
    """An integer."""
    return _buildunsigned((value << 1) ^ (value >> 63))


def build_binary(data: bytes) -> bytes:
    """Bytes with their length."""
    return _buildunsigned(len(data)) + data


def build_list(kind: int, elements: Sequence[bytes], count: int | None = None) -> bytes:
    """A list of elements of a type. `count` is their number if some are in one piece."""
    count = len(elements) if count is None else count
    head = bytes([count << 4 | kind]) if count < _SHORT_LIST else bytes([0xF0 | kind]) + _buildunsigned(count)
    return b"".join([head, *elements])


def _buildunsigned(value: int) -> bytes:
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)
