"""Find the byte ranges of plain values in a file. They have a fixed width, or each follows its length.

Source: github.com/apache/parquet-format, Encodings.md, "Plain"
"""

from __future__ import annotations

import struct
from array import array

import numpy as np
from numpy.typing import NDArray

from touchfs.core.errors import FormatError
from touchfs.core.extent import Buffer, Reads

_LENGTH = struct.Struct("<I")
# Shorter values are read through, of longer ones only the lengths before them.
_SHORT_MAX = 4096
_STEP_SIZE = 1 << 16


def plain_ranges(offset: int, size: int, count: int, width: int) -> Reads[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """The offsets and lengths of `count` values in `size` bytes at an offset of the file.

    `width` is that of each value; 0 if each begins with its length, 4 bytes. Raises FormatError.
    """
    if count * (width or _LENGTH.size) > size:
        raise _outside(offset)
    if width:
        return offset + width * np.arange(count), np.full(count, width, np.int64)
    return (yield from _with_lengths(offset, size, count))


def _with_lengths(offset: int, size: int, count: int) -> Reads[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    starts, lengths = array("q"), array("q")
    step = _LENGTH.size if size > count * _SHORT_MAX else _STEP_SIZE
    position, end = offset, offset + size
    data: Buffer = b""
    data_start, data_end = offset, offset
    for _ in range(count):
        start = position + _LENGTH.size
        if start > end:
            raise _outside(offset)
        if start > data_end:
            data = yield position, min(step, end - position)
            data_start, data_end = position, position + len(data)
        (length,) = _LENGTH.unpack_from(data, position - data_start)
        starts.append(start)
        lengths.append(length)
        position = start + length
        if position > end:
            raise _outside(offset)
    return np.frombuffer(starts, np.int64), np.frombuffer(lengths, np.int64)


def _outside(offset: int) -> FormatError:
    return FormatError("a value of a Parquet column is outside its page", offset=offset)
