"""Image file directories (IFDs) of TIFF and BigTIFF, of both byte orders.

A file has a header, which leads to the first directory, and each directory leads to the next one. A directory is a list
of entries, one for each tag: type, count, and the values, or their offset where they do not fit the entry.

Source: TIFF 6.0 (Adobe, 1992), sections 2 and 8; BigTIFF as in libtiff's doc/specification/bigtiff.rst.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from touchfs.core.errors import FormatError
from touchfs.core.extent import Buffer, Reads

# Bytes of one value by type: BYTE 1, ASCII 2, SHORT 3, LONG 4, RATIONAL 5, … IFD 13, and BigTIFF's LONG8, SLONG8, IFD8.
TYPE_SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4, 16: 8, 17: 8, 18: 8}
LONG, LONG8 = 4, 16
_INTEGERS = {1: "B", 3: "H", LONG: "I", LONG8: "Q"}

# A directory of a usual image has about 15 entries, which take 186 bytes, or 316 in BigTIFF.
_FIRST_READ = 512


class TiffEntry(NamedTuple):
    """An entry of a directory: `length` values, which are in the raw slot `value` of 4 or 8 bytes, or at its offset."""

    tag: int
    type: int
    length: int
    value: bytes

    @property
    def size(self) -> int:
        """Bytes that the values take; 0 if the type is unknown."""
        return TYPE_SIZES.get(self.type, 0) * self.length


@dataclass(frozen=True, slots=True)
class TiffLayout:
    """The structures of a file.

    `order` is `<` or `>`. `count` is the number of entries, with which a directory begins; an `entry` is tag, type,
    count and value; `header` is that of a file whose first directory follows it.
    """

    order: str
    count: struct.Struct
    entry: struct.Struct
    offset: struct.Struct
    header: bytes

    @property
    def is_big(self) -> bool:
        return self.offset.size == 8

    def integers(self, entry: TiffEntry, data: Buffer) -> Sequence[int]:
        """Unpack the values of an entry of integers, which are in `data`. Raises FormatError if it has others."""
        code = _INTEGERS.get(entry.type)
        if code is None or len(data) < entry.size:
            raise FormatError(f"its tag {entry.tag} has values of type {entry.type} instead of integers")
        return struct.unpack(f"{self.order}{entry.length}{code}", data[: entry.size])


def _classic(order: str, mark: bytes) -> TiffLayout:
    structs = (struct.Struct(order + "H"), struct.Struct(order + "HHI4s"), struct.Struct(order + "I"))
    return TiffLayout(order, *structs, mark + struct.pack(order + "HI", 42, 8))


def _big(order: str, mark: bytes) -> TiffLayout:
    structs = (struct.Struct(order + "Q"), struct.Struct(order + "HHQ8s"), struct.Struct(order + "Q"))
    return TiffLayout(order, *structs, mark + struct.pack(order + "HHHQ", 43, 8, 0, 16))


_CLASSIC = {order: _classic(order, mark) for order, mark in (("<", b"II"), (">", b"MM"))}
_BIG = {order: _big(order, mark) for order, mark in (("<", b"II"), (">", b"MM"))}


def read_header(size: int) -> Reads[tuple[TiffLayout, int]]:
    """Read the header of a file of `size` bytes: its layout, and the offset of its first directory.

    Raises FormatError if it is no TIFF.
    """
    head = bytes((yield 0, min(size, 16)))
    order = {b"II": "<", b"MM": ">"}.get(head[:2])
    if order is None or len(head) < 8:
        raise FormatError("not a TIFF file", offset=0)
    (version,) = struct.unpack_from(order + "H", head, 2)
    if version == 42:
        return _CLASSIC[order], struct.unpack_from(order + "I", head, 4)[0]
    if version == 43 and len(head) == 16 and struct.unpack_from(order + "HH", head, 4) == (8, 0):
        return _BIG[order], struct.unpack_from(order + "Q", head, 8)[0]
    raise FormatError(f"not a TIFF file: its version is {version}", offset=2)


def read_directory(
    layout: TiffLayout, offset: int, size: int, max_bytes: int, *, skip: bool = False
) -> Reads[tuple[list[TiffEntry], int]]:
    """Read the directory at an offset: its entries, and the offset of the next directory, which is 0 after the last.

    With `skip`, the entries are not read, and the list is empty. Raises FormatError if the directory does not lie in
    the file of `size` bytes, or has over `max_bytes` bytes.
    """
    if not 0 < offset <= size - layout.count.size:
        raise FormatError("the directory of a frame is not in the file", offset=min(offset, size))
    head = yield offset, min(size - offset, _FIRST_READ)
    (count,) = layout.count.unpack_from(head)
    start = layout.count.size
    end = start + count * layout.entry.size
    if offset + end > size:
        raise FormatError(f"the directory of a frame has {count} entries and ends after the file", offset=offset)
    # Some writers leave out the offset of the next directory at the end of the file.
    if offset + end + layout.offset.size > size:
        following = 0
    elif end + layout.offset.size <= len(head):
        (following,) = layout.offset.unpack_from(head, end)
    else:
        (following,) = layout.offset.unpack((yield offset + end, layout.offset.size))
    if skip:
        return [], following
    if end > max_bytes:
        raise FormatError(f"the directory of a frame has over {max_bytes:,} bytes", offset=offset)
    if end > len(head):
        head = yield offset, end
    entries = [TiffEntry(*fields) for fields in layout.entry.iter_unpack(bytes(head[start:end]))]
    return entries, following
