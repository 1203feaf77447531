"""The header of a FLAC file: the block STREAMINFO, which is always first.

Source: RFC 9639, sections 8.1 and 8.2.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from touchfs.core.errors import FormatError
from touchfs.core.extent import Buffer

MAGIC = b"fLaC"
# magic; type and size of the first block; its block and frame sizes; rate, channels - 1, bits - 1 and samples as one
# number of 20, 3, 5 and 36 bits
_BEGIN = struct.Struct(">4sI10xQ")
HEAD_SIZE = _BEGIN.size
_LAST_BLOCK, _BLOCK_SIZE = 1 << 31, 34


class StreamInfo(NamedTuple):
    """The format of a FLAC file: `rate` in Hz, `bits` of a sample, and `frames`, the samples per channel; 0 if the
    writer did not know.
    """

    rate: int
    channels: int
    bits: int
    frames: int


def parse_stream_info(head: Buffer) -> StreamInfo:
    """Parse STREAMINFO from the first `HEAD_SIZE` bytes of a file, or more. Raises FormatError."""
    if len(head) < HEAD_SIZE:
        raise FormatError("too short for a FLAC file", offset=len(head))
    magic, block, numbers = _BEGIN.unpack_from(head)
    if magic != MAGIC or block & ~_LAST_BLOCK != _BLOCK_SIZE:
        raise FormatError("not a FLAC file: it does not begin with STREAMINFO", offset=0)
    rate = numbers >> 44
    if not rate:
        raise FormatError("a FLAC file without a sample rate", offset=0)
    return StreamInfo(rate, (numbers >> 41 & 7) + 1, (numbers >> 36 & 31) + 1, numbers & (1 << 36) - 1)
