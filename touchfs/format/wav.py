"""WAV headers: find the format and the PCM of a file, and build a header for raw PCM.

A WAV is a RIFF file: chunks of (name, size, bytes, padding to an even size). Only `fmt ` and `data` matter; other
chunks may come before `data`. Sizes are 32 bits; a bigger file begins with RF64 and has 64-bit sizes in `ds64`. A
writer that cannot seek back leaves a placeholder as the size of `data`: 0, or more than the file has. The data then
extends to the end of the file.

The scan reads the first page, which nearly always has everything, and after that only chunk headers.

Source: Microsoft's Multimedia Programming Interface 1.0 (1991), mmreg.h, EBU Tech 3306 (RF64).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

from touchfs.core.errors import FormatError
from touchfs.core.extent import Buffer, Reads

PCM = 1
FLOAT = 3
ALAW, MULAW = 6, 7
ADPCM_MS, ADPCM_IMA = 2, 0x11
EXTENSIBLE = 0xFFFE

# RIFF or RF64, size of all that follows these 8 bytes, WAVE
_RIFF = struct.Struct("<4sI4s")
# name, size without this header and without padding
_CHUNK = struct.Struct("<4sI")
# codec, channels, rate, bytes per second, bytes per frame, bits per sample
_FMT = struct.Struct("<HHIIHH")
# size of this extension, valid bits, speaker mask, then a GUID: the real codec and a fixed rest
_EXTENSION = struct.Struct("<HHIH14s")
_GUID_REST = bytes.fromhex("0000 0000 1000 8000 00aa 0038 9b71")
# RIFF size, data size, frames, entries of a table of other chunks' sizes
_DS64 = struct.Struct("<QQQI")

_UINT32_MAX = 2**32 - 1
_BEFORE_DATA = _RIFF.size + _CHUNK.size + _FMT.size + _CHUNK.size
_BEFORE_DATA_RF64 = _BEFORE_DATA + _CHUNK.size + _DS64.size
# Placeholders that a file may outgrow: a header never filled in, ffmpeg, SoX, a ds64 never filled in
_STREAMED = (0, _UINT32_MAX, 0x7FFFF000, 2**64 - 1)
# Others that files do not have are 1e9, 2e9, 2**31 - 1, 2**32 - 44 and the like; less is that of a file cut short.
_PLACEHOLDER_MIN = 1 << 29

_FIRST_READ = 4096
# Real files have a handful of chunks before `data`; a hostile one could have 500 million empty ones.
_CHUNKS_MAX = 1000


@dataclass(frozen=True, slots=True)
class Wav:
    """The format of a WAV file (`rate` in Hz, `codec` as in mmreg.h) and the byte range of its data in the file.

    A block is a sample of all channels; in codings such as ADPCM it is what can be decoded by itself. `missing` is the
    number of bytes that a file lacks because it was cut short.
    """

    rate: int
    channels: int
    bits: int
    codec: int
    block_size: int
    data_offset: int
    data_size: int
    missing: int = 0

    @property
    def is_pcm16(self) -> bool:
        """True for 16-bit PCM, whose bytes are copied and shown as they are. Any other coding is decoded."""
        return self.codec == PCM and self.bits == 16


def header_size(data_size: int) -> int:
    """Return the size in bytes of the header that `build_header` makes for this much data."""
    return _BEFORE_DATA_RF64 if _needs_rf64(data_size) else _BEFORE_DATA


def build_header(data_size: int, rate: int, channels: int = 1, bits: int = 16, codec: int = PCM) -> bytes:
    """Return the header of a file with `data_size` bytes of PCM or floats. Raises FormatError for impossible values."""
    frame_size = channels * bits // 8
    if not (
        0 <= data_size < 2**63
        and 0 < rate <= _UINT32_MAX
        and 0 < frame_size < 2**16
        and 0 < channels < 2**16
        and 0 < bits < 2**16
        and rate * frame_size <= _UINT32_MAX
    ):
        raise FormatError(
            f"no WAV header can describe {data_size} bytes, {channels} channels of {bits} bits at {rate} Hz", offset=0
        )
    fmt = _CHUNK.pack(b"fmt ", _FMT.size) + _FMT.pack(codec, channels, rate, rate * frame_size, frame_size, bits)
    riff_size = header_size(data_size) - _CHUNK.size + data_size
    if not _needs_rf64(data_size):
        return _RIFF.pack(b"RIFF", riff_size, b"WAVE") + fmt + _CHUNK.pack(b"data", data_size)
    sizes = _CHUNK.pack(b"ds64", _DS64.size) + _DS64.pack(riff_size, data_size, data_size // frame_size, 0)
    return _RIFF.pack(b"RF64", _UINT32_MAX, b"WAVE") + sizes + fmt + _CHUNK.pack(b"data", _UINT32_MAX)


def scan(size: int) -> Reads[Wav]:
    """Find the format and the data in a whole WAV file of `size` bytes: one to be copied. Raises FormatError."""
    found = yield from scan_cut(size)
    if found.missing:
        stated = found.data_size + found.missing
        message = f"the data should have {stated} bytes and is cut short after {found.data_size}"
        raise FormatError(message, offset=found.data_offset - _CHUNK.size)
    return found


def scan_cut(size: int) -> Reads[Wav]:
    """Like `scan`, also of a file that is cut short: the data ends with the file."""
    if size < _RIFF.size:
        raise FormatError("too short for a WAV file", offset=size)
    head = yield 0, min(size, _FIRST_READ)
    form, riff_size, kind = yield from _unpack(_RIFF, 0, head, size)
    if form not in (b"RIFF", b"RF64", b"BW64") or kind != b"WAVE":
        raise FormatError(f"not a WAV file: it begins with {form + kind!r}", offset=0)

    fmt: tuple[int, int, int, int, int] | None = None
    long_size = None
    offset = _RIFF.size
    for _ in range(_CHUNKS_MAX):
        name, length = yield from _unpack(_CHUNK, offset, head, size)
        start = offset + _CHUNK.size
        if name == b"data":
            if fmt is None:
                raise FormatError("the data comes before its format", offset=offset)
            if length == _UINT32_MAX and long_size is not None:
                length = long_size
            left = size - start
            finished = length == 0 and riff_size == size - _CHUNK.size  # not streamed: the file has no samples
            if length in _STREAMED and not finished:
                length = left
            missing = length - left if left < length < _PLACEHOLDER_MIN else 0
            return Wav(*fmt, start, min(length, left), missing)
        if name == b"fmt ":
            fmt = yield from _format(start, length, head, size)
        elif name == b"ds64" and form != b"RIFF":
            _, long_size, _, _ = yield from _unpack(_DS64, start, head, size)
        offset = start + length + length % 2
    raise FormatError(f"no data in the first {_CHUNKS_MAX} chunks", offset=offset)


def _format(offset: int, length: int, head: Buffer, size: int) -> Reads[tuple[int, int, int, int, int]]:
    if length < _FMT.size:
        raise FormatError(f"a format of {length} bytes, it has at least {_FMT.size}", offset=offset)
    codec, channels, rate, _, block_size, bits = yield from _unpack(_FMT, offset, head, size)
    if channels == 0 or rate == 0:
        raise FormatError(f"a WAV file of {channels} channels at {rate} Hz", offset=offset)
    if codec == EXTENSIBLE and length >= _FMT.size + _EXTENSION.size:
        _, _, _, real, rest = yield from _unpack(_EXTENSION, offset + _FMT.size, head, size)
        if rest == _GUID_REST:
            codec = real
    return rate, channels, bits, codec, block_size


def _unpack(layout: struct.Struct, offset: int, head: Buffer, size: int) -> Reads[tuple[Any, ...]]:
    end = offset + layout.size
    if end > size:
        raise FormatError("the WAV file ends before its data", offset=size)
    if end <= len(head):
        return layout.unpack_from(head, offset)
    data = yield offset, layout.size
    if len(data) != layout.size:
        raise FormatError(f"the WAV file ends before its {size} bytes", offset=offset)
    return layout.unpack(data)


def _needs_rf64(data_size: int) -> bool:
    return _BEFORE_DATA - _CHUNK.size + data_size > _UINT32_MAX
