"""Decoding the recording of a sample. PCM of 16 bits in a WAV is taken as it is; libraries decode all else."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from touchfs.extent import Buffer, Memory, drive
from touchfs.format import wav
from touchfs.media.recording import decode_recording

_FULL_SCALE = 1 << 15


def decode(data: bytes) -> tuple[NDArray[Any], int]:
    """Return the samples, of shape (frames, channels), and the sampling rate in Hz.

    They are int16 if the data are a WAV of 16-bit PCM, else float32 within -1 and 1. Raises FormatError for data that
    cannot be decoded, or are too large, and MissingExtraError if a decoder is needed that is not installed.
    """
    if data[:4] in (b"RIFF", b"RF64"):
        header = drive(wav.scan(len(data)), Memory(data))
        if header.is_pcm16:
            start = header.data_offset
            return pcm_array(header, memoryview(data)[start : start + header.data_size]), header.rate
    return decode_recording(data)


def pcm_array(header: wav.Wav, data: Buffer) -> NDArray[Any]:
    """Return the data of a WAV of 16- or 32-bit PCM as an array of integers, of shape (frames, channels): a copy."""
    width = header.bits // 8
    count = len(data) // (width * header.channels) * header.channels
    return np.frombuffer(data, f"<i{width}", count).reshape(-1, header.channels).copy()


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
