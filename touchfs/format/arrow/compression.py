"""Compressed buffers of Arrow files: eight bytes with the size when decompressed, −1 if it is not compressed, and a
frame of a codec.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import BinaryIO

from touchfs.core.errors import FormatError
from touchfs.core.extent import Buffer
from touchfs.core.extras import load_pyarrow
from touchfs.limits import too_large

# In the order of their numbers in a batch; the names are pyarrow's.
CODECS = ("lz4", "zstd")
# A buffer begins with the size of what it decompresses to.
SIZE = struct.Struct("<q")
PIECE_SIZE = 1 << 20
# The size of a buffer that is not compressed
_RAW = -1


def parse_size(data: Buffer, length: int, limit: int) -> tuple[int, bool]:
    """Return the size of the bytes in a buffer of `length` bytes that begins with `data`, and whether it is compressed.

    An empty buffer has no size before it. Raises FormatError, also for more than `limit` bytes to decompress.
    """
    if length == 0:
        return 0, False
    if length < SIZE.size:
        raise FormatError("a compressed Arrow buffer lacks its size")
    (size,) = SIZE.unpack_from(data)
    if size == _RAW:
        return length - SIZE.size, False
    if size < 0:
        raise FormatError(f"a compressed Arrow buffer of {size} bytes")
    if size > limit:
        raise FormatError(f"a compressed Arrow buffer is not read: {too_large(limit)}")
    return size, True


def decompressed_range(codec: str, data: Buffer, start: int, length: int, limit: int) -> bytes:
    """Return a range of what a whole buffer decompresses to, fewer bytes at its end. What is after it is not looked at.

    Raises as `parse_size` and `decompressed_pieces`.
    """
    view = memoryview(data)
    size, is_compressed = parse_size(view[: SIZE.size], len(view), limit)
    if not is_compressed:
        return bytes(view[SIZE.size :][start : start + length])
    found, position = bytearray(), 0
    for piece in decompressed_pieces(codec, view[SIZE.size :], size):
        found += piece[max(start - position, 0) : start + length - position]
        position += len(piece)
        if position >= start + length:
            break
    return bytes(found)


def decompressed_pieces(codec: str, frame: Buffer | BinaryIO, size: int) -> Iterator[Buffer]:
    """Yield what a frame decompresses to, in pieces of at most `PIECE_SIZE`. The frame may be a file, which is read so.

    Raises FormatError if it is damaged or decompresses to another size, and MissingExtraError without pyarrow.
    """
    pyarrow = load_pyarrow()
    left = size
    try:
        file = frame if hasattr(frame, "read") else pyarrow.BufferReader(frame)
        with pyarrow.CompressedInputStream(file, codec) as stream:
            while piece := stream.read(min(left + 1, PIECE_SIZE)):
                left -= len(piece)
                if left < 0:
                    break
                yield piece
    except (OSError, pyarrow.ArrowException) as error:
        raise FormatError(f"a compressed Arrow buffer is damaged: {error}") from error
    if left:
        raise FormatError(f"a compressed Arrow buffer has {size - left} bytes or more, and says that it has {size}")
