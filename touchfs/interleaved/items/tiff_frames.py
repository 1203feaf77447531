"""Frames of a TIFF that is in memory, each as a TIFF of its own."""

from __future__ import annotations

import io
import warnings
from collections.abc import Collection
from typing import NamedTuple

from touchfs.core.errors import FormatError, MissingExtraError
from touchfs.core.extent import Memory, drive
from touchfs.core.extras import install_hint
from touchfs.interleaved.tiff import frames

TIFF_MAGICS = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")

# What Pillow raises for damaged files, most of it where a tag has a value of another type.
_DAMAGE = (OSError, SyntaxError, ValueError, TypeError, AttributeError, LookupError, ArithmeticError, EOFError)


class FrameBytes(NamedTuple):
    """A frame as a file. `is_reencoded` says that its pixels were decoded, and encoded again without loss."""

    data: bytes
    is_reencoded: bool


def cut_frames(data: bytes, numbers: Collection[int], max_decoded: int) -> dict[int, FrameBytes | None]:
    """Return frames by their numbers; None for each that the file does not have, or that cannot be decoded.

    What is no TIFF, or has one frame only, is returned as it is. The data of a frame is copied as it is compressed;
    where that is not possible, it is decoded and compressed with Deflate. A frame of over `max_decoded` bytes of pixels
    is not decoded, nor are frames copied that have more than that together, as they share their data.
    """
    if data[:4] not in TIFF_MAGICS:
        return dict.fromkeys(numbers, FrameBytes(data, False))
    cut: dict[int, FrameBytes | None] = dict.fromkeys(numbers)
    try:
        found = {frame.number: frame for frame in drive(frames(len(data), numbers), Memory(data))}
    except FormatError:
        return cut
    if 0 in found and _is_alone(data):
        cut[0] = FrameBytes(data, False)
        return cut
    left = max_decoded
    for number, frame in found.items():
        left -= frame.size
        if left < 0:
            break
        if frame.uncopyable is None:
            content = frame.content(Memory(data))
            cut[number] = FrameBytes(bytes(content.read(0, content.size)), False)
        elif frame.width * frame.height * 4 <= max_decoded:
            cut[number] = _reencode(data, number)
    return cut


def _is_alone(data: bytes) -> bool:
    try:
        return not drive(frames(len(data), {1}), Memory(data))
    except FormatError:
        return False


def _reencode(data: bytes, number: int) -> FrameBytes | None:
    """Decode a frame and encode it again; None if Pillow cannot. Raises MissingExtraError."""
    try:
        from PIL import Image
    except ImportError as error:
        message = f"frames of TIFF files that cannot be copied need Pillow: {install_hint('interleaved')}"
        raise MissingExtraError(message) from error
    written = io.BytesIO()
    try:
        # Pillow warns of large images and of odd tags; the size was checked, and tags do not matter here.
        with warnings.catch_warnings(action="ignore"), Image.open(io.BytesIO(data), formats=("TIFF",)) as image:
            image.seek(number)
            frame = image.copy()
            frame.save(written, "TIFF", compression="tiff_adobe_deflate")
    except (*_DAMAGE, Image.DecompressionBombError):
        return None
    return FrameBytes(written.getvalue(), True)
