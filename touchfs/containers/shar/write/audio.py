"""Encode recordings as Lhotse does, which is as soundfile does: 16 bits, whatever the type of the samples.

A WAV needs no soundfile. libsndfile's conversion is simple: samples are scaled to 32 bits, clipped to that range, and
their lower half is dropped (without rounding).
"""

from __future__ import annotations

import io
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from touchfs.core.errors import FormatError, MissingExtraError
from touchfs.core.extent import Buffer
from touchfs.core.extras import install_hint
from touchfs.format import magic, wav
from touchfs.media.slices.whole import WholeRecording

FORMATS = ("wav", "flac", "mp3", "opus")

_MAGIC = {"wav": "wav", "flac": "flac", "mp3": "mp3", "opus": "opus"}
# In an OpusHead
_OPUS_ENCODED_RATE = struct.Struct("<12xI")
_OPUS_RATES = (8000, 12000, 16000, 24000, 48000)
_DTYPES = ("int16", "float32", "float64")


@dataclass(frozen=True, slots=True)
class Audio:
    """`samples` of shape (channels, time), or (time,) for one channel: int16, or floats from -1 to 1.

    If `sampling_rate` (in Hz), or for a field of the kind `original` the `format`, is None, it is taken from the cut's
    manifest.
    """

    samples: NDArray[Any]
    sampling_rate: int | None = None
    format: str | None = None


@dataclass(frozen=True, slots=True)
class Shape:
    """The size of a recording: rate in Hz, channels, and samples per channel."""

    sampling_rate: int
    channels: int
    num_samples: int


def encode(samples: NDArray[Any], sampling_rate: int, name: str) -> bytes:
    """Encode samples of shape (channels, time). Raises FormatError or MissingExtraError."""
    if samples.dtype.name not in _DTYPES or samples.ndim != 2:
        shape = f"{samples.dtype.name} of shape {samples.shape}"
        raise FormatError(f"samples are {', '.join(_DTYPES)} of shape (channels, time), not {shape}")
    if samples.dtype.kind == "f" and np.isnan(samples).any():
        raise FormatError("samples that are not a number")
    if name == "wav":
        pcm = _to_int16(samples).T.tobytes()
        return wav.build_header(len(pcm), sampling_rate, len(samples)) + pcm
    soundfile = load_soundfile(f"{name} is written")
    file = io.BytesIO()
    container, subtype = ("ogg", "opus") if name == "opus" else (name, None)
    try:
        soundfile.write(file, samples.T, sampling_rate, format=container, subtype=subtype)
    except (ValueError, TypeError, soundfile.SoundFileError) as error:
        raise FormatError(f"cannot be written as {name or 'a file without an extension'}: {error}") from error
    return file.getvalue()


def scan(data: Buffer) -> Shape:
    """The shape of an encoded recording, as Lhotse reads it. Raises FormatError or MissingExtraError."""
    info = WholeRecording.of(data).info
    rate = _opus_rate(info.extradata) if info.coding == "opus" else info.rate
    return Shape(rate, info.channels, info.frames * rate // info.rate)


def _opus_rate(head: bytes) -> int:
    """The rate to which libsndfile decodes Opus: that of what was encoded, or the next one that Opus has."""
    (encoded,) = _OPUS_ENCODED_RATE.unpack_from(head)
    return next((rate for rate in _OPUS_RATES if 0 < encoded <= rate), _OPUS_RATES[-1])


def check_format(data: Buffer, name: str) -> None:
    """Raise FormatError unless the bytes begin as a file of this format."""
    found = magic.extension(data)
    # MP3 has no magic bytes: a file begins with one of some hundred headers.
    if found != _MAGIC[name] and (name != "mp3" or bytes(data[:1]) != b"\xff"):
        raise FormatError(f"not {name}: {bytes(data[: magic.MAGIC_SIZE])!r}")


def _to_int16(samples: NDArray[Any]) -> NDArray[np.int16]:
    if samples.dtype == np.int16:
        return samples.astype("<i2", copy=False)
    scaled = np.clip(np.rint(samples.astype(np.float64) * 2.0**31), -(2.0**31), 2.0**31 - 1)
    return (scaled.astype(np.int64) >> 16).astype("<i2")


def load_soundfile(purpose: str) -> Any:
    """Import the module soundfile, which has no types. `purpose` is what is done with it, for the error.

    Raises MissingExtraError if it is not installed, or libsndfile is not.
    """
    try:
        import soundfile
    except (ImportError, OSError) as error:  # OSError: soundfile is installed, libsndfile is not
        raise MissingExtraError(f"{purpose} with soundfile ({error}): {install_hint('media')}") from error
    return soundfile
