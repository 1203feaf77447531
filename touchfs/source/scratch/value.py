"""The files of small values in the scratch store: a header with a checksum, and the bytes."""

from __future__ import annotations

import os
import struct
import zlib

from touchfs.core.extent import Buffer
from touchfs.source.scratch.file import open_complete

# Header of a value: magic, crc32 of its bytes, their number.
_HEADER = struct.Struct("<4sIQ")
VALUE_START = _HEADER.size
_MAGIC = b"tfsv"


def open_value(path: str) -> tuple[int, bytes] | None:
    """Open a value, and read all of it, which begins at `VALUE_START`; None if it does not exist, is damaged or is not
    trusted. Raises OSError.
    """
    descriptor = open_complete(path)
    if descriptor is None:
        return None
    try:
        with open(descriptor, "rb", 0, closefd=False) as file:
            header, value = file.read(VALUE_START), file.readall()
        if header == value_header(value):
            return descriptor, value
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None


def value_header(value: Buffer) -> bytes:
    """The header of a value, which is stored before it."""
    return _HEADER.pack(_MAGIC, zlib.crc32(value), len(value))
