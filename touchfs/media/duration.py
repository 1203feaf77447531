"""The duration of a recording from its first bytes, for WAV and FLAC.

Nearly every WAV file begins with the usual header of 44 bytes, so that is tried first, in one step.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import NamedTuple

from touchfs.core.extent import Buffer, Reads
from touchfs.format import flac, wav
from touchfs.media.coding.sample_format import WIDTHS, format_of_bits, format_of_wav

# Size of the first read. A shorter answer is enough if it has at least USUAL_SIZE bytes.
HEAD_SIZE, USUAL_SIZE = 512, 44
# RIFF, size, WAVE; "fmt ", 16, codec, channels, rate, bytes a second, bytes a frame, bits; data, size
_USUAL = struct.Struct("<4s4x12sHHI4xHH4sI")
_WAVE_FMT_16 = b"WAVEfmt " + struct.pack("<I", 16)


class AudioInfo(NamedTuple):
    """The format of a recording: `rate` in Hz, and `frames`, the number of samples per channel.

    `sample_format` is what it decodes to (`touchfs.media.coding.sample_format`). `pcm` is the offset in bytes of the
    first sample if the data of a WAV are such samples, else 0.
    """

    rate: int
    channels: int
    frames: int
    sample_format: str = "s16"
    pcm: int = 0


def scan(size: int, scan_wav: Callable[[int], Reads[wav.Wav]] = wav.scan_cut) -> Reads[AudioInfo | None]:
    """Read the format of a file of `size` bytes; None if its header does not have it. The answer to the first read may
    be shorter than requested. With `wav.scan`, a WAV that was cut short is an error.

    Raises FormatError if the file is damaged, or neither WAV nor FLAC.
    """
    head = yield 0, min(size, HEAD_SIZE)
    if len(head) >= USUAL_SIZE and (usual := usual_wav(head, size)) is not None:
        return usual
    if head[: len(flac.MAGIC)] == flac.MAGIC:
        info = flac.parse_stream_info(head)
        return AudioInfo(info.rate, info.channels, info.frames, format_of_bits(info.bits)) if info.frames else None
    reads = scan_wav(size)
    next(reads)
    try:
        request = reads.send(head)
        while True:
            request = reads.send((yield request))
    except StopIteration as end:
        found: wav.Wav = end.value
    return _info(found.codec, found.rate, found.channels, found.bits, found.data_size, found.data_offset)


def usual_wav(head: Buffer, size: int) -> AudioInfo | None:
    """Parse a WAV file of `size` bytes from its first `USUAL_SIZE` bytes; None if they are not the usual header."""
    riff, wave_fmt, codec, channels, rate, width, bits, data, length = _USUAL.unpack_from(head)
    if (
        data == b"data"
        and riff == b"RIFF"
        and wave_fmt == _WAVE_FMT_16
        and 0 < length <= size - USUAL_SIZE
        and width == bits // 8 * channels
        and width
        and rate
    ):
        return _info(codec, rate, channels, bits, length, USUAL_SIZE)
    return None


def _info(codec: int, rate: int, channels: int, bits: int, size: int, data_offset: int) -> AudioInfo | None:
    """The format of a WAV with `size` bytes of data; None for codings whose packets have to be counted."""
    sample_format = format_of_wav(codec, bits)
    if sample_format is not None:
        return AudioInfo(rate, channels, size // (WIDTHS[sample_format] * channels), sample_format, data_offset)
    return AudioInfo(rate, channels, size // channels) if codec in (wav.ALAW, wav.MULAW) and bits == 8 else None
