"""PNG files of 8 bits: levels with a palette, and colours."""

from __future__ import annotations

import struct
import zlib

import numpy as np
from numpy.typing import NDArray

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_HEADER = struct.Struct(">IIBBBBB")
_RGB, _INDEXED = 2, 3


def levels_png(levels: NDArray[np.uint8], palette: NDArray[np.uint8]) -> bytes:
    """A PNG of levels, shape (height, width), in the colours of a palette, shape (256, 3)."""
    return _png(levels, _INDEXED, _chunk(b"PLTE", palette.tobytes()))


def colours_png(colours: NDArray[np.uint8]) -> bytes:
    """A PNG of colours, shape (height, width, 3)."""
    return _png(colours, _RGB, b"")


def _png(pixels: NDArray[np.uint8], colour_type: int, palette: bytes) -> bytes:
    height, width = pixels.shape[:2]
    lines = np.zeros((height, 1 + pixels.nbytes // height), np.uint8)  # each line begins with its filter: 0, none
    lines[:, 1:] = pixels.reshape(height, -1)
    header = _chunk(b"IHDR", _HEADER.pack(width, height, 8, colour_type, 0, 0, 0))
    return _SIGNATURE + header + palette + _chunk(b"IDAT", zlib.compress(lines.tobytes(), 6)) + _chunk(b"IEND", b"")


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
