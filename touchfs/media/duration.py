"""How long a recording is, by its first bytes: of WAV and FLAC.

Nearly every WAV file has the 44 bytes that are usual before its data, so they are looked at first, at once.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from touchfs.extent import Buffer, Reads
from touchfs.format import flac, wav

# What is asked for first. Any part of it will do that is not shorter than USUAL_SIZE.
HEAD_SIZE, USUAL_SIZE = 512, 44
# RIFF, size, WAVE; "fmt ", 16, codec, channels, rate, bytes a second, bytes a frame, bits; data, size
_USUAL = struct.Struct("<4s4x12s2xHI4xHH4sI")
_WAVE_FMT_16 = b"WAVEfmt " + struct.pack("<I", 16)
_SIZE_MAX = 0x7FFF0000  # above are those that stand for "not known yet"


class AudioInfo(NamedTuple):
    """`frames` is the number of samples of each channel, `rate` in Hz."""

    rate: int
    channels: int
    frames: int


def scan(size: int) -> Reads[AudioInfo | None]:
    """Of a file of this size; None where it does not tell. The first answer may be shorter than what was asked for.

    Raises FormatError for what is damaged, or neither WAV nor FLAC.
    """
    head = yield 0, min(size, HEAD_SIZE)
    if len(head) >= USUAL_SIZE and (usual := usual_wav(head, size)) is not None:
        return usual
    if head[: len(flac.MAGIC)] == flac.MAGIC:
        told = flac.parse_stream_info(head)
        return AudioInfo(*told) if told.frames else None
    plan = wav.scan(size)
    next(plan)
    try:
        wanted = plan.send(head)
        while True:
            wanted = plan.send((yield wanted))
    except StopIteration as end:
        found: wav.Wav = end.value
    width = found.bits // 8 * found.channels
    return AudioInfo(found.rate, found.channels, found.data_size // width) if width else None


def usual_wav(head: Buffer, size: int) -> AudioInfo | None:
    """Of a WAV file of this size, if its first `USUAL_SIZE` bytes are the usual ones."""
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
