"""ADPCM in WAV files, of 4 bits: Microsoft's, and that of IMA. A block begins with its state, so it stands for itself.

libav's decoder takes the size of a block from the header of a WAV file. Sources: mmreg.h, and Microsoft's Multimedia
Standards Update of 1994.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping

from touchfs.core.errors import FormatError
from touchfs.format import wav

ADPCM_BITS = 4
# codec, channels, rate, bytes per second, bytes per block, bits per sample, size of an extension
_FORMAT = struct.Struct("<HHIIHHH")


def _ms_samples(size: int, channels: int) -> int:
    return (size - 6 * channels) * 2 // channels if size >= 7 * channels else 0


def _ima_samples(size: int, channels: int) -> int:
    return 1 + (size - 4 * channels) // (4 * channels) * 8 if size >= 4 * channels else 0


# By codec of a WAV: libav's name, and the samples per channel of a block of so many bytes and channels
ADPCM: Mapping[int, tuple[str, Callable[[int, int], int]]] = {
    wav.ADPCM_MS: ("adpcm_ms", _ms_samples),
    wav.ADPCM_IMA: ("adpcm_ima_wav", _ima_samples),
}


def build_adpcm_format(header: wav.Wav) -> bytes:
    """The `fmt ` chunk of a WAV file with this header, which `build_adpcm_header` takes."""
    # libav does not need the bytes per second.
    return _FORMAT.pack(header.codec, header.channels, header.rate, 0, header.block_size, header.bits, 0)


def build_adpcm_header(fmt: bytes) -> bytes:
    """A WAV file with this `fmt ` chunk, and one block of zeros. Raises FormatError for one of another container."""
    if len(fmt) != _FORMAT.size:
        raise FormatError("ADPCM is supported in WAV files only")
    size = _FORMAT.unpack(fmt)[4]
    chunks = b"".join(
        struct.pack("<4sI", name, len(data)) + data for name, data in ((b"fmt ", fmt), (b"data", bytes(size)))
    )
    return struct.pack("<4sI4s", b"RIFF", 4 + len(chunks), b"WAVE") + chunks
