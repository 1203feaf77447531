"""Files of samples that are arrays as they are stored: `.npy`, and `.wav` of PCM."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from numpy.typing import NDArray

from touchfs.core.errors import FormatError, UsageError
from touchfs.core.extent import Content, drive
from touchfs.dataset.recording import pcm_array
from touchfs.format import wav


def npy_array(data: bytes, key: str) -> NDArray[Any]:
    """The array in a `.npy`. Raises FormatError, which names the `key` of its sample."""
    try:
        array: NDArray[Any] = np.load(io.BytesIO(data), allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise FormatError(f"not a .npy: {error}", key=key) from error
    return array


def pcm_of_wav(content: Content, key: str) -> NDArray[Any]:
    """The PCM of a `.wav` as integers, int16 or int32, of shape (frames,) if it is mono, else (frames, channels).

    Raises FormatError if it is damaged, and UsageError if it has other samples. Both name the `key` of its sample.
    """
    try:
        header = drive(wav.scan_cut(content.size), content)
    except FormatError as error:
        raise FormatError(error.message, offset=error.offset, key=key) from error
    if header.codec != wav.PCM or header.bits not in (16, 32):
        raise UsageError(f"a .wav of codec {header.codec} with {header.bits} bits has to be decoded", key=key)
    pcm = pcm_array(header, content.read(header.data_offset, header.data_size))
    return pcm[:, 0] if header.channels == 1 else pcm
