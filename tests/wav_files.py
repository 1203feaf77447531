"""The bytes of WAV files, written by Python's own module."""

import io
import wave

import numpy as np


def wav_of(pcm: bytes | np.ndarray, rate: int = 8000, channels: int = 1) -> bytes:
    """A WAV of 16-bit PCM."""
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setparams((channels, 2, rate, 0, "NONE", ""))
        writer.writeframes(bytes(pcm) if isinstance(pcm, bytes) else pcm.astype("<i2").tobytes())
    return file.getvalue()
