"""Decode an image and encode a smaller one, in the child process: Pillow and its libraries are C, too."""

from __future__ import annotations

import io
from typing import Any

from PIL import Image, ImageOps

from touchfs.core.errors import FormatError
from touchfs.core.extent import Buffer
from touchfs.media.decoder.messages import Message
from touchfs.media.decoder.request_content import RequestContent
from touchfs.media.file_arrays import decoded_image

Image.init()  # Pillow would import its plugins when no file can be opened any more

_PIXELS = 1 << 26


def thumbnail(request: Message, content: RequestContent) -> tuple[dict[str, Any], list[Buffer]]:
    """A JPEG of the image in the first blob, turned as it is to be seen, and at most `width` pixels wide.

    Raises FormatError.
    """
    width = request.values["width"]
    image = decoded_image(bytes(request.blobs[0]), "", _PIXELS, 2 * width)
    try:
        image.thumbnail((width, 4 * width))
        file = io.BytesIO()
        _on_white(ImageOps.exif_transpose(image)).save(file, "JPEG", quality=85)
    except (OSError, ValueError, SyntaxError, TypeError, LookupError, ArithmeticError) as error:
        raise FormatError(f"it cannot be shown: {error}") from error
    return {}, [file.getvalue()]


def _on_white(image: Image.Image) -> Image.Image:
    if "A" not in image.getbands() and "transparency" not in image.info:
        return image.convert("RGB")
    white = Image.new("RGBA", image.size, "white")
    white.alpha_composite(image.convert("RGBA"))
    return white.convert("RGB")
