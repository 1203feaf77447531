"""The codecs of Parquet pages, as pyarrow has them."""

from __future__ import annotations

import struct

from touchfs.core.errors import FormatError
from touchfs.core.extent import Buffer
from touchfs.core.extras import load_pyarrow

# By their numbers in column chunks; the names are pyarrow's. LZO, number 3, is in no reader.
_NAMES = {1: "snappy", 2: "gzip", 4: "brotli", 6: "zstd", 7: "lz4_raw"}
_UNCOMPRESSED, _OLD_LZ4 = 0, 5
# A frame of Hadoop's LZ4: the size of what follows when decompressed, and as it is
_FRAME = struct.Struct(">II")


def decompress(codec: int, data: Buffer, size: int) -> Buffer:
    """Decompress the bytes of a page to exactly `size` bytes.

    Raises FormatError for damaged bytes and for an unknown codec, and MissingExtraError without pyarrow.
    """
    if codec == _UNCOMPRESSED:
        return data
    if codec == _OLD_LZ4:
        return _old_lz4(memoryview(data), size)
    if codec not in _NAMES:
        raise FormatError(f"a Parquet page is compressed by codec {codec}, which is not read")
    return _decompress(_NAMES[codec], data, size)


def _decompress(name: str, data: Buffer, size: int) -> Buffer:
    arrow = load_pyarrow()
    try:
        # An Arrow buffer has signed bytes.
        found = memoryview(arrow.Codec(name).decompress(arrow.py_buffer(data), size)).cast("B")
    except (arrow.ArrowException, OSError, ValueError) as error:
        raise FormatError(f"a Parquet page cannot be decompressed: {error}") from error
    if len(found) != size:
        raise FormatError(f"a Parquet page has {len(found)} bytes, and says that it has {size}")
    return found


def _old_lz4(data: memoryview, size: int) -> Buffer:
    """The frames that Hadoop writes, or the single block that other old writers do."""
    parts, position, left = [], 0, size
    while left and position + _FRAME.size <= len(data):
        each, stored = _FRAME.unpack_from(data, position)
        start = position + _FRAME.size
        if not 0 < each <= left or stored > len(data) - start:
            break
        parts.append(_decompress("lz4_raw", data[start : start + stored], each))
        position, left = start + stored, left - each
    return b"".join(parts) if not left else _decompress("lz4_raw", data, size)
