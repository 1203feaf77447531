"""Images: files as they are, and pixels as PNG or another format of Pillow's."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from touchfs.core.errors import ArgumentTypeError, ArgumentValueError, MissingExtraError
from touchfs.core.extras import install_hint, load_pyarrow
from touchfs.features.base import FeatureType
from touchfs.features.file import file_bytes

if TYPE_CHECKING:
    import pyarrow

# Modes that not every format can store.
_PNG_MODES = frozenset({"RGBA", "LA", "PA", "P"})


class Image(FeatureType):
    """The bytes of an image file, in large_binary, whose offsets of 64 bits allow a column over 2 GB.

    Takes the bytes of a file, its path, `{"bytes", "path"}` as Hugging Face's, an image of Pillow's, or an array of
    uint8, (height, width) or (height, width, channels), which is stored in `encode_format`. Files stay as they are.
    """

    __slots__ = ("encode_format",)

    def __init__(self, encode_format: str = "PNG") -> None:
        self.encode_format = encode_format

    def to_arrow_type(self) -> pyarrow.DataType:
        return load_pyarrow().large_binary()

    def encode(self, value: Any, *, cache_dir: Path | None = None) -> bytes | None:
        """Return the bytes of the image's file; None for None.

        Raises ArgumentTypeError for any other value, NotFoundError, SourceError, and MissingExtraError without Pillow.
        """
        if isinstance(value, Mapping):
            value = value.get("path") if value.get("bytes") is None else value["bytes"]
        if value is None:
            return None
        data = file_bytes(value)
        return self._encode_pixels(value) if data is None else data

    def _encode_pixels(self, value: Any) -> bytes:
        try:
            from PIL import Image as pillow
        except ImportError as error:
            raise MissingExtraError(f"encoding images needs Pillow: {install_hint('video')}") from error
        encode_format = self.encode_format
        if isinstance(value, pillow.Image):
            if (unchanged := _unchanged_file(value)) is not None:
                return unchanged.read_bytes()
            encode_format = value.format or "PNG"
            if value.mode in _PNG_MODES:
                encode_format = "PNG"
        elif hasattr(value, "__array_interface__"):
            try:
                value = pillow.fromarray(value)
            except (TypeError, ValueError) as error:
                raise ArgumentValueError(
                    f"Cannot encode an array of {value.dtype} {value.shape} as an image"
                ) from error
        else:
            raise ArgumentTypeError(f"Cannot encode image of type {type(value)}")
        file = io.BytesIO()
        value.save(file, format=encode_format)
        return file.getvalue()

    def to_json(self) -> dict[str, Any]:
        return {"type": "Image", "encode_format": self.encode_format}

    def __repr__(self) -> str:
        return f"Image(encode_format={self.encode_format!r})"


def _unchanged_file(image: Any) -> Path | None:
    """Return the file that an image of Pillow was opened from, if the image is still what is in it.

    What has been decoded is compared: a thumbnail, or an image that was drawn on, keeps the name of the file. So does a
    later frame, and readers of the file would take its first one.
    """
    from PIL import Image as pillow

    name = getattr(image, "filename", "")
    if not name or not Path(name).is_file() or image.tell():
        return None
    try:
        with pillow.open(name) as stored:
            # The palette may be another one before anything is decoded.
            is_decoded = not getattr(image, "tile", None) or image.mode in ("P", "PA")
            is_same = (stored.size, stored.mode) == (image.size, image.mode)
            return Path(name) if is_same and not (is_decoded and _pixels(stored) != _pixels(image)) else None
    except OSError:  # another file took its place
        return None


def _pixels(image: Any) -> tuple[bytes, Any]:
    """Return the bytes of an image of Pillow, and the palette that they refer to, or None."""
    return image.tobytes(), image.getpalette()
