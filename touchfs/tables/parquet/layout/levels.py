"""Levels of Parquet pages, and indices into dictionaries: runs of one number, and runs of numbers packed into bits.

Source: github.com/apache/parquet-format, Encodings.md, "Run Length Encoding / Bit-Packing Hybrid"
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from touchfs.core.errors import FormatError
from touchfs.core.extent import Buffer

WIDTH_MAX = 32
_VARINT_MAX = 5


def width_of(largest: int) -> int:
    """The bits of numbers up to the largest."""
    return largest.bit_length()


def parse_hybrid(data: Buffer, width: int, count: int) -> NDArray[np.int64]:
    """Parse `count` numbers of `width` bits. What is after them is not looked at. Raises FormatError."""
    if not 0 <= width <= WIDTH_MAX:
        raise FormatError(f"Parquet numbers of {width} bits")
    found = np.zeros(count, np.int64)
    if width == 0:
        return found
    view, size = memoryview(data), (width + 7) // 8
    position = done = 0
    while done < count:
        head, position = _varint(view, position)
        if head & 1:
            length = (head >> 1) * width  # in bytes: groups of 8 numbers
            used = min(length, ((count - done) * width + 7) // 8)
            if used > len(view) - position or not length:
                raise FormatError("Parquet levels or indices are cut off")
            numbers = min(count - done, used * 8 // width)
            found[done : done + numbers] = unpack_bits(view[position : position + used], width, numbers)
            position += length
        else:
            numbers = min(count - done, head >> 1)
            if size > len(view) - position or not numbers:
                raise FormatError("Parquet levels or indices are cut off")
            found[done : done + numbers] = int.from_bytes(view[position : position + size], "little")
            position += size
        done += numbers
    return found


def unpack_bits(data: Buffer, width: int, count: int) -> NDArray[np.int64]:
    """The `count` numbers of `width` bits that are packed into bytes, the lowest bits first."""
    bits = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little")[: count * width]
    return bits.reshape(count, width) @ (np.int64(1) << np.arange(width, dtype=np.int64))


def _varint(view: memoryview, position: int) -> tuple[int, int]:
    value = 0
    for i in range(_VARINT_MAX):
        if position + i >= len(view):
            break
        byte = view[position + i]
        value |= (byte & 0x7F) << (7 * i)
        if byte < 0x80:
            return value, position + i + 1
    raise FormatError("Parquet levels or indices are cut off")
