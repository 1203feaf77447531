"""Frames in WebP become pixels, through Pillow."""

from __future__ import annotations

import io

import numpy as np
from numpy.typing import NDArray

from touchfs.errors import FormatError, MissingExtraError
from touchfs.extras import install_hint


def decode_webp(data: bytes, width: int, height: int) -> NDArray[np.uint8]:
    """Return the pixels, uint8 of shape (height, width, 3) in RGB.

    Raises FormatError if it is no WebP or has another size, which its header says, and MissingExtraError.
    """
    try:
        from PIL import Image
    except ImportError as error:
        raise MissingExtraError(f"frames of videos need Pillow: {install_hint('video')}") from error
    try:
        with Image.open(io.BytesIO(data), formats=("WEBP",)) as image:
            if image.size != (width, height):
                raise FormatError(f"a frame has {image.size} pixels where {(width, height)} were expected")
            return np.asarray(image.convert("RGB"))
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise FormatError(f"a frame cannot be decoded: {error}") from error
