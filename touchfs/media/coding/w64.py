"""Sony Wave64: WAV with chunks of 64-bit sizes, each named by 16 bytes, and each beginning at a multiple of 8.

Source: Sony Pictures Digital, Wave64 file format (2006).
"""

from __future__ import annotations

import struct

from touchfs.core.errors import FormatError
from touchfs.core.extent import Reads
from touchfs.format import wav

MAGIC = b"riff" + bytes.fromhex("2e91 cf11 a5d6 28db 04c1 0000")
_REST = bytes.fromhex("f3ac d311 8cd1 00c0 4f8e db8a")  # after the four letters of all other names
# name, size with this header
_CHUNK = struct.Struct("<16sQ")
_HEAD = _CHUNK.size + 16
# codec, channels, rate, bytes per second, bytes per frame, bits per sample; and the extension of a WAV's `fmt `
_FMT = struct.Struct("<HHIIHH")
_EXTENSION = struct.Struct("<HHIH14s")
_CHUNKS_MAX = 1000


def scan(size: int) -> Reads[wav.Wav]:
    """Find the format and the data in a Wave64 file of `size` bytes. Raises FormatError."""
    head = yield 0, min(size, _HEAD)
    if len(head) < _HEAD or head[:16] != MAGIC or head[24:40] != b"wave" + _REST:
        raise FormatError("not a Wave64 file", offset=0)
    found: tuple[int, int, int, int, int] | None = None
    offset = _HEAD
    for _ in range(_CHUNKS_MAX):
        if offset + _CHUNK.size > size:
            break
        name, length = _CHUNK.unpack((yield offset, _CHUNK.size))
        start = offset + _CHUNK.size
        if name == b"data" + _REST:
            if found is None:
                raise FormatError("the data comes before its format", offset=offset)
            left = size - start  # a smaller size was never filled in
            return wav.Wav(*found, start, min(length - _CHUNK.size, left) if length >= _CHUNK.size else left)
        if length < _CHUNK.size:
            break
        if name == b"fmt " + _REST:
            fmt = yield start, min(length - _CHUNK.size, _FMT.size + _EXTENSION.size, size - start)
            if len(fmt) < _FMT.size:
                break
            codec, channels, rate, _, block_size, bits = _FMT.unpack_from(fmt)
            if codec == wav.EXTENSIBLE and len(fmt) >= _FMT.size + _EXTENSION.size:
                _, _, _, codec, _ = _EXTENSION.unpack_from(fmt, _FMT.size)
            if channels == 0 or rate == 0:
                raise FormatError(f"a Wave64 file of {channels} channels at {rate} Hz", offset=offset)
            found = rate, channels, bits, codec, block_size
        offset = start + (length - _CHUNK.size + 7) // 8 * 8
    raise FormatError("a Wave64 file without data, or cut short", offset=offset)
