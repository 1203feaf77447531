"""Values that are kept as bytes and checked when they are read: a head, a JSON object, and binary data after it.

The head has a magic, a version, the checksum (crc32) of the rest, and the size of the JSON text. It tells damage. What
somebody planted may have a right checksum, so the caller checks the values themselves.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping
from typing import Any

from touchfs.core.errors import FormatError

_HEAD = struct.Struct("<4sIII")


def pack_checked(magic: bytes, version: int, values: Mapping[str, Any], *data: bytes) -> bytes:
    """Return the bytes of values that JSON can hold, and of binary data."""
    text = json.dumps(values).encode()
    rest = b"".join((text, *data))
    return _HEAD.pack(magic, version, zlib.crc32(rest), len(text)) + rest


def unpack_checked(kept: bytes, magic: bytes, version: int, of: str) -> tuple[Any, bytes]:
    """Return the parsed JSON, whatever it is, and the binary data. `of` names what the bytes describe, for errors.

    Raises FormatError if the bytes are damaged or of another version.
    """
    if len(kept) < _HEAD.size:
        raise FormatError(f"what is kept of {of} is cut short: remove it")
    found_magic, found_version, checksum, size = _HEAD.unpack_from(kept)
    rest = kept[_HEAD.size :]
    if (found_magic, found_version) != (magic, version) or zlib.crc32(rest) != checksum:
        raise FormatError(f"what is kept of {of} is damaged, or of another version: remove it")
    try:
        return json.loads(rest[:size]), rest[size:]
    except (ValueError, RecursionError) as error:
        raise damaged(of) from error


def damaged(of: str) -> FormatError:
    """The error that values are not those of a description."""
    return FormatError(f"what is kept of {of} is damaged: remove it")
