"""The manifest of a version of a Lance dataset: how many rows each of its fragments has.

Lance itself says so, too, but its threads do not survive a fork. So whatever is counted before a fork is counted here.

The file ends with the offset of the message (64 bits), the version of the format (2 × 16 bits) and "LANC", the message
begins with its size (32 bits), and all is little-endian. It is a Manifest of Lance's `table.proto`, in Protocol
Buffers, of which three messages matter:

    Manifest        2 fragments, 3 version
    DataFragment    3 deletion_file, 4 physical_rows
    DeletionFile    4 num_deleted_rows
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from touchfs.core.errors import FormatError
from touchfs.core.extent import Reads

_END = struct.Struct("<QHH4s")
_SIZE = struct.Struct("<I")
_MAGIC = b"LANC"
# A fragment takes about 100 bytes.
_SIZE_MAX = 1 << 27
_VARINT_MAX = 10
_ROWS_MAX = 1 << 48


@dataclass(frozen=True, slots=True)
class LanceManifest:
    """A version, and the rows of its fragments without the deleted ones, in the order in which Lance has them.

    `digest` is a hash of the whole manifest, which names all files of data: no two datasets have the same.
    """

    version: int
    fragment_rows: tuple[int, ...]
    digest: str

    @property
    def rows(self) -> int:
        return sum(self.fragment_rows)


def read_manifest(size: int) -> Reads[LanceManifest]:
    """Parse a manifest file of `size` bytes. Raises FormatError."""
    if size < _END.size:
        raise _damaged("it is too short")
    offset, _, _, magic = _END.unpack(bytes((yield size - _END.size, _END.size)))
    if magic != _MAGIC or offset + _SIZE.size + _END.size > size:
        raise _damaged("its end is wrong")
    (length,) = _SIZE.unpack(bytes((yield offset, _SIZE.size)))
    if length > min(size - offset - _SIZE.size - _END.size, _SIZE_MAX):
        raise _damaged(f"a message of {length} bytes")
    return _parse(bytes((yield offset + _SIZE.size, length)))


def _parse(message: bytes) -> LanceManifest:
    version, rows = 0, []
    for field, value in _fields(message):
        match field, value:
            case 2, bytes():
                rows.append(_fragment_rows(value))
            case 3, int():
                version = value
    return LanceManifest(version, tuple(rows), hashlib.sha256(message).hexdigest())


def _fragment_rows(message: bytes) -> int:
    stored = deleted = 0
    for field, value in _fields(message):
        match field, value:
            case 3, bytes():
                deleted = next((count for name, count in _fields(value) if name == 4 and isinstance(count, int)), 0)
            case 4, int():
                stored = value
    if not deleted <= stored < _ROWS_MAX:
        raise _damaged(f"a fragment of {stored} rows, of which {deleted} are deleted")
    return stored - deleted


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a message: numbers as integers; texts, bytes and messages as bytes."""
    position = 0
    while position < len(message):
        tag, position = _varint(message, position)
        match tag & 7:
            case 0:
                value, position = _varint(message, position)
                yield tag >> 3, value
                continue
            case 1:
                length = 8
            case 2:
                length, position = _varint(message, position)
            case 5:
                length = 4
            case wire_type:
                raise _damaged(f"a field of type {wire_type}")
        if length > len(message) - position:
            raise _damaged("a field is cut short")
        yield tag >> 3, message[position : position + length]
        position += length


def _varint(message: bytes, position: int) -> tuple[int, int]:
    """A number, and the position after it."""
    value = 0
    for shift, byte in enumerate(message[position : position + _VARINT_MAX]):
        value |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            return value, position + shift + 1
    raise _damaged("a number has no end")


def _damaged(problem: str) -> FormatError:
    return FormatError(f"is no manifest of Lance, or a damaged one: {problem}")
