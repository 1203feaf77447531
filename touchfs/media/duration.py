"""The duration of a recording from its first bytes, for WAV and FLAC.

Nearly every WAV file begins with the usual header of 44 bytes, so that is tried first, in one step.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from touchfs.extent import Buffer, Reads
from touchfs.format import flac, wav

# Size of the first read. A shorter answer is enough if it has at least USUAL_SIZE bytes.
HEAD_SIZE, USUAL_SIZE = 512, 44
# RIFF, size, WAVE; "fmt ", 16, codec, channels, rate, bytes a second, bytes a frame, bits; data, size
_USUAL = struct.Struct("<4s4x12s2xHI4xHH4sI")
_WAVE_FMT_16 = b"WAVEfmt " + struct.pack("<I", 16)
_SIZE_MAX = 0x7FFF0000  # larger values mean "not known yet"


class AudioInfo(NamedTuple):
    """The format of a recording: `rate` in Hz, and `frames`, the number of samples per channel."""

    rate: int
    channels: int
    frames: int


def scan(size: int) -> Reads[AudioInfo | None]:
    """Read the format of a file of `size` bytes; None if its header does not have it. The answer to the first read may
    be shorter than requested.

    Raises FormatError if the file is damaged, or neither WAV nor FLAC.
    """
    head = yield 0, min(size, HEAD_SIZE)
    if len(head) >= USUAL_SIZE and (usual := usual_wav(head, size)) is not None:
        return usual
    if head[: len(flac.MAGIC)] == flac.MAGIC:
        info = flac.parse_stream_info(head)
        return AudioInfo(*info) if info.frames else None
    reads = wav.scan(size)
    next(reads)
    try:
        request = reads.send(head)
        while True:
            request = reads.send((yield request))
    except StopIteration as end:
        found: wav.Wav = end.value
    width = found.bits // 8 * found.channels
    return AudioInfo(found.rate, found.channels, found.data_size // width) if width else None


def usual_wav(head: Buffer, size: int) -> AudioInfo | None:
    """Parse a WAV file of `size` bytes from its first `USUAL_SIZE` bytes; None if they are not the usual header."""
    riff, wave_fmt, channels, rate, width, bits, data, length = _USUAL.unpack_from(head)
    if (
        data == b"data"
        and riff == b"RIFF"
        and wave_fmt == _WAVE_FMT_16
        and 0 < length <= size - USUAL_SIZE
        and length <= _SIZE_MAX
        and width == bits // 8 * channels
        and width
        and rate
    ):
        return AudioInfo(rate, channels, length // width)
    return None
