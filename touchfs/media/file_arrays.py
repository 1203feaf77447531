"""Files of samples as arrays and images: `.npy`, `.npz`, `.wav` of PCM, and what Pillow decodes."""

from __future__ import annotations

import io
import warnings
import zipfile
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from touchfs.core.errors import FormatError, MissingExtraError, UsageError
from touchfs.core.extent import Buffer, Content, drive
from touchfs.core.extras import install_hint
from touchfs.format import wav
from touchfs.limits import LIMITS, too_large

if TYPE_CHECKING:
    from PIL.Image import Image

# What Pillow raises for damaged files.
_DAMAGE = (OSError, SyntaxError, ValueError, TypeError, AttributeError, LookupError, ArithmeticError, EOFError)


def npy_array(data: bytes, key: str) -> NDArray[Any]:
    """The array in a `.npy`. Raises FormatError, which names the `key` of its sample."""
    try:
        array: NDArray[Any] = np.load(io.BytesIO(data), allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise FormatError(f"not a .npy: {error}", key=key) from error
    return array


def npz_array(data: bytes, key: str) -> NDArray[Any]:
    """The only array in a `.npz`. Raises FormatError as `npy_array`, and UsageError if it has several."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = archive.infolist()
            if len(members) != 1:
                names = ", ".join(member.filename.removesuffix(".npy") for member in members)
                raise UsageError(
                    f"its .npz has {len(members)} arrays ({names}): numpy.load(io.BytesIO(sample['npz'])) has them all",
                    key=key,
                )
            if members[0].file_size > LIMITS.decoded:
                raise FormatError(too_large(LIMITS.decoded), key=key)
            return npy_array(archive.read(members[0]), key)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, OSError, zlib.error) as error:
        raise FormatError(f"not a .npz: {error}", key=key) from error


def decoded_image(data: bytes, key: str, most_pixels: int | None = None, near: int | None = None) -> Image:
    """An image, decoded by Pillow. Raises MissingExtraError without it, and FormatError, which names the sample, also
    for one of over `most_pixels`. A JPEG that is only shown in `near` pixels is decoded smaller.
    """
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError as error:
        raise MissingExtraError(f"images need Pillow: {install_hint('image')}") from error
    try:
        # Pillow warns of large images, which it decodes, and raises for those twice as large.
        with warnings.catch_warnings(action="ignore"):
            image = Image.open(io.BytesIO(data))
            width, height = image.size
            if most_pixels is not None and width * height > most_pixels:
                raise FormatError(f"an image of {width:,} x {height:,} pixels is not decoded to be shown", key=key)
            if near is not None:
                image.draft(None, (near, near))
            image.load()
    except UnidentifiedImageError as error:
        raise FormatError("not an image that Pillow can read, or damaged", key=key) from error
    except (*_DAMAGE, Image.DecompressionBombError) as error:
        raise FormatError(f"its image cannot be decoded: {error}", key=key) from error
    return image


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
    pcm = _pcm_array(header, content.read(header.data_offset, header.data_size))
    return pcm[:, 0] if header.channels == 1 else pcm


def _pcm_array(header: wav.Wav, data: Buffer) -> NDArray[Any]:
    """Return the data of a WAV of 16- or 32-bit PCM as an array of integers, of shape (frames, channels): a copy."""
    width = header.bits // 8
    count = len(data) // (width * header.channels) * header.channels
    return np.frombuffer(data, f"<i{width}", count).reshape(-1, header.channels).copy()
