"""Decoding the recording of a sample. PCM of 16 bits in a WAV is taken as it is; libraries decode all else."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from touchfs.extent import Memory
from touchfs.format import wav
from touchfs.media.recording import decode_recording
from touchfs.source.drive import drive

# Extensions of a sample's recording. In other fields the field's name precedes them.
RECORDINGS = ("wav", "flac", "mp3", "ogg", "opus", "m4a", "aac", "aiff", "webm", "original")
_FULL_SCALE = 1 << 15


def decode(data: bytes) -> tuple[NDArray[Any], int]:
    """Return the samples, of shape (frames, channels), and the sampling rate in Hz.

    They are int16 if the data are a WAV of 16-bit PCM, else float32 within -1 and 1. Raises FormatError for data that
    cannot be decoded, or are too large, and MissingExtraError if a decoder is needed that is not installed.
    """
    return _pcm16(data) or decode_recording(data)


def to_float32(samples: NDArray[Any]) -> NDArray[np.float32]:
    """Return samples as floats within -1 and 1."""
    if samples.dtype != np.int16:
        return samples
    return (samples / np.float32(_FULL_SCALE)).astype(np.float32, copy=False)


def to_int16(samples: NDArray[Any]) -> NDArray[np.int16]:
    """Return samples as 16-bit integers. Floats are rounded, and clipped at full scale."""
    if samples.dtype == np.int16:
        return samples
    scaled = np.rint(samples * np.float32(_FULL_SCALE))
    return np.clip(scaled, -_FULL_SCALE, _FULL_SCALE - 1).astype(np.int16)


def _pcm16(data: bytes) -> tuple[NDArray[Any], int] | None:
    if data[:4] not in (b"RIFF", b"RF64"):
        return None
    header = drive(wav.scan(len(data)), Memory(data))
    if header.codec != wav.PCM or header.bits != 16:
        return None
    frames = header.data_size // (2 * header.channels)
    samples = np.frombuffer(data, "<i2", frames * header.channels, header.data_offset).copy()
    return samples.reshape(frames, header.channels), header.rate
