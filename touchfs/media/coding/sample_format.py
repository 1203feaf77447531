"""Sample formats of PCM, and conversion between them.

Samples are arrays of shape (frames, channels). `s24` is kept in 32-bit integers, as values of 24 bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from touchfs.core.extent import Buffer
from touchfs.format import wav

# The type of an array, and the value of full scale. Integers are scaled by powers of 2.
_FORMATS: dict[str, tuple[str, int]] = {
    "u8": ("u1", 1 << 7),
    "s16": ("<i2", 1 << 15),
    "s24": ("<i4", 1 << 23),
    "s32": ("<i4", 1 << 31),
    "f32": ("<f4", 1),
    "f64": ("<f8", 1),
}
_U8_ZERO = 128
FORMATS = tuple(_FORMATS)
# Bytes of a sample in a file
WIDTHS = {"u8": 1, "s16": 2, "s24": 3, "s32": 4, "f32": 4, "f64": 8}

# The formats of the data of a WAV file, by its codec and the bytes of a sample
_OF_WAV = {
    **{(wav.PCM, width): name for name, width in WIDTHS.items() if name[0] in "us"},
    **{(wav.FLOAT, width): name for name, width in WIDTHS.items() if name[0] == "f"},
}


def format_of_wav(codec: int, bits: int) -> str | None:
    """The format of the data of a WAV file, whose samples take whole bytes; None if the data have to be decoded."""
    return _OF_WAV.get((codec, (bits + 7) // 8)) if bits >= 8 else None


def format_of_bits(bits: int) -> str:
    """The format that has room for lossless samples of so many bits."""
    return "s16" if bits <= 16 else "s24" if bits <= 24 else "s32"


def dtype(sample_format: str) -> np.dtype[Any]:
    """The type of the array that holds samples of a format."""
    return np.dtype(_FORMATS[sample_format][0])


def is_float(sample_format: str) -> bool:
    """Return whether the samples are floats, with full scale 1."""
    return sample_format in ("f32", "f64")


def wav_header(data_size: int, rate: int, channels: int, sample_format: str) -> bytes:
    """The header of a WAV file. Raises FormatError for values that no header can describe."""
    codec = wav.FLOAT if is_float(sample_format) else wav.PCM
    return wav.build_header(data_size, rate, channels, 8 * WIDTHS[sample_format], codec)


def convert_samples(samples: NDArray[Any], source: str, target: str) -> NDArray[Any]:
    """Convert samples from one format to another.

    To integers, values are rounded to the nearest (to the even one between two) and clipped, as libswresample does
    without dither.
    """
    if source == target:
        return samples
    # 32 bits are exact between these formats. Scales are powers of 2, so that only rounding to integers loses bits.
    floats = np.float32 if source in ("u8", "s16", "f32") and target in ("s16", "f32") else np.float64
    values: NDArray[Any] = samples.astype(floats)
    if source == "u8":
        values -= floats(_U8_ZERO)
    values *= floats(1 / _FORMATS[source][1])
    if not is_float(target):
        scale = _FORMATS[target][1]
        values = np.clip(np.rint(values * floats(scale)), -scale, scale - 1)
        if target == "u8":
            values = values + floats(_U8_ZERO)
    return values.astype(dtype(target), copy=False)


def pack(samples: NDArray[Any], sample_format: str) -> Buffer:
    """The bytes of samples in a WAV file."""
    data = np.ascontiguousarray(samples, dtype(sample_format)).reshape(-1).view(np.uint8)
    return data.data if sample_format != "s24" else data.reshape(-1, 4)[:, :3].tobytes()


def unpack(data: Buffer, sample_format: str, channels: int) -> NDArray[Any]:
    """The samples in bytes of a WAV file. A rest of less than a sample per channel is left out."""
    width = WIDTHS[sample_format] * channels
    data = memoryview(data)[: len(data) // width * width]
    if sample_format != "s24":
        return np.frombuffer(data, dtype(sample_format)).reshape(-1, channels)
    wide = np.zeros((len(data) // 3, 4), np.uint8)
    wide[:, 1:] = np.frombuffer(data, np.uint8).reshape(-1, 3)
    return (wide.view("<i4") >> 8).reshape(-1, channels)
