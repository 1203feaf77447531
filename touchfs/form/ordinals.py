"""The detail of files of rows: the ordinals of these in their table, 32 bits each."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from touchfs.core.errors import FormatError

_ORDINAL = struct.Struct("<I")
ORDINAL_SIZE = _ORDINAL.size


def pack_ordinal(ordinal: int) -> bytes:
    """The detail of a form of rows: the ordinal of the row in its table, 32 bits."""
    return _ORDINAL.pack(ordinal)


def pack_ordinals(ordinals: NDArray[np.integer[Any]]) -> bytes:
    """The details of several rows, one after the other."""
    return ordinals.astype("<u4").tobytes()


def parse_ordinal(detail: bytes) -> int:
    """The ordinal in a detail. Raises FormatError if it is damaged."""
    if len(detail) != _ORDINAL.size:
        raise FormatError("the catalog's description of a row is damaged: index with --force")
    ordinal: int = _ORDINAL.unpack(detail)[0]
    return ordinal
