"""Decoding the recording of a sample, and its samples in other types."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from touchfs.core.errors import FormatError

_FULL_SCALE = 1 << 15


def decode(data: bytes) -> tuple[NDArray[Any], int]:
    """Return the samples, of shape (frames, channels), and the sampling rate in Hz: those of `slices/all`.

    They are int16 if the data are a WAV of 16-bit PCM, else float32 within -1 and 1. Raises FormatError for data that
    cannot be decoded, or are too large, and MissingExtraError if a decoder is needed that is not installed.
    """
    from touchfs.media.slices.whole import WholeRecording

    try:
        whole = WholeRecording.of(data)
        is_pcm16 = whole.info.is_plain_pcm and whole.info.sample_format == "s16"
        samples = whole.samples("s16" if is_pcm16 else "f32")
    except FormatError as error:
        reason = error.message.removeprefix("cannot be decoded: ")
        raise FormatError(f"its recording cannot be decoded: {reason}") from error
    return samples.copy() if is_pcm16 else samples, whole.info.rate


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
