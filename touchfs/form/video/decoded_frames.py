"""The frames of a video as arrays of pixels."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from touchfs.core.errors import FormatError, MissingExtraError, TouchfsError
from touchfs.core.extras import install_hint
from touchfs.form.video.frames import FramesOf


class VideoFrames:
    """The frames of a video, of the sample with a `key`: `frames[i]` is uint8 of shape (height, width, 3).

    A slice is a window: an array of shape (frames, height, width, 3). Frames are found when the first thing is asked,
    and rendered as JPEG when they are needed. Raises FormatError for a video that cannot be read, and MissingExtraError
    without PyAV or Pillow.
    """

    def __init__(self, frames: FramesOf, key: str) -> None:
        self._frames = frames
        self._key = key

    def __len__(self) -> int:
        with _of(self._key):
            return len(self._frames.find())

    def __getitem__(self, which: int | slice) -> NDArray[Any]:
        numbers = range(len(self))[which]
        if isinstance(numbers, int):
            return self._pixels(numbers)
        return np.stack([*map(self._pixels, numbers)]) if numbers else np.zeros((0, 0, 0, 3), np.uint8)

    def seconds(self, number: int) -> float:
        """The time of a frame in seconds from the begin of the video."""
        with _of(self._key):
            return self._frames.find().seconds(range(len(self))[number])

    def jpeg(self, number: int) -> bytes:
        with _of(self._key):
            return self._frames.jpeg(range(len(self))[number])

    def _pixels(self, number: int) -> NDArray[Any]:
        try:
            from PIL import Image
        except ImportError as error:
            raise MissingExtraError(f"frames of videos need Pillow: {install_hint('video')}") from error
        try:
            return np.asarray(Image.open(io.BytesIO(self.jpeg(number))).convert("RGB"))
        except OSError as error:
            raise FormatError(f"frame {number} cannot be decoded: {error}", key=self._key) from error

    def __repr__(self) -> str:
        return f"<{len(self)} frames of {self._key!r}>"


@contextmanager
def _of(key: str) -> Iterator[None]:
    """Errors name the sample."""
    try:
        yield
    except TouchfsError as error:
        raise error.of(key) from None
