"""Sizes of images from their headers are those that Pillow states."""

import io
import struct

import pytest
from checked_source import CheckedSource
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from touchfs.core.extent import drive
from touchfs.format.image_size import ImageSize, image_size, image_size_reads

EXIF = Image.Exif()
EXIF[274] = 6
EXIF[270] = "x" * 20_000
FORMATS = [
    ("JPEG", {}),
    ("JPEG", {"progressive": True, "icc_profile": bytes(150_000), "exif": EXIF}),
    ("PNG", {}),
    ("GIF", {}),
    ("WEBP", {}),
    ("WEBP", {"lossless": True}),
    ("WEBP", {"exif": EXIF}),
    ("BMP", {}),
    ("TIFF", {}),
    ("TIFF", {"compression": "jpeg", "big_tiff": True}),
    ("TIFF", {"tiffinfo": {274: 6}}),
    ("AVIF", {}),
    ("AVIF", {"exif": EXIF}),
]


def save(size: tuple[int, int], kind: str, options: dict, mode: str = "RGB") -> bytes:
    file = io.BytesIO()
    Image.new(mode, size).save(file, kind, **options)
    return file.getvalue()


def by_reads(data: bytes) -> ImageSize | None:
    return drive(image_size_reads(len(data)), CheckedSource(data))


@pytest.mark.parametrize(("kind", "options"), FORMATS)
@pytest.mark.parametrize("size", [(1, 1), (17, 33), (640, 3), (3, 640)])
def test_the_size_is_that_of_pillow(kind, options, size):
    data = save(size, kind, options)
    assert by_reads(data) == image_size(data) == Image.open(io.BytesIO(data)).size


@pytest.mark.parametrize("header", [12, 40, -40])
def test_bmp_of_os2_and_from_the_top(header):
    if header == 12:
        info = struct.pack("<IHHHH", 12, 7, 5, 1, 24)
    else:
        info = struct.pack("<IiiHHIIiiII", 40, 7, 5 if header > 0 else -5, 1, 24, 0, 0, 0, 0, 0, 0)
    data = b"BM" + struct.pack("<IHHI", 14 + len(info) + 120, 0, 0, 14 + len(info)) + info + bytes(120)
    assert image_size(data) == Image.open(io.BytesIO(data)).size == (7, 5)


def test_big_endian_tiff():
    data = save((7, 5), "TIFF", {}, "I;16B")
    assert data.startswith(b"MM")
    assert image_size(data) == (7, 5)


def test_headers_suffice():
    """A profile of 150 kB is stepped over, and pixels are not read."""
    data = save((3000, 2000), *FORMATS[1])
    file = CheckedSource(data)
    assert drive(image_size_reads(len(data)), file) == (3000, 2000)
    assert file.read_bytes < 5000


def test_a_head_may_be_too_short():
    data = save((30, 20), *FORMATS[1])
    assert image_size(data[:5000]) is None
    assert image_size(save((30, 20), "PNG", {})[:24]) == (30, 20)


@pytest.mark.parametrize(
    "data", [b"", b"BM", b"hello world", b"\xff\xd8\xff", b"RIFF____WEBPVP8L", b"II*\0", b"<svg/>"]
)
def test_what_is_no_image_has_no_size(data):
    assert image_size(data) is None


def test_an_image_without_pixels_has_no_size():
    data = bytearray(save((30, 20), "PNG", {}))
    data[16:20] = bytes(4)
    assert image_size(bytes(data)) is None


def test_aspect_ratio():
    assert ImageSize(30, 20).aspect_ratio == 1.5


SEEDS = [save((40, 30), kind, options) for kind, options in FORMATS if len(options.get("icc_profile", "")) == 0]


@given(st.sampled_from(SEEDS), st.data())
def test_damage_gives_a_size_or_none(seed, data):
    damaged = bytearray(seed)
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, min(len(seed), 200) - 1))
        damaged[place] = data.draw(st.sampled_from([0, 1, 255]) | st.integers(0, 255))
    damaged = bytes(damaged[: data.draw(st.just(len(seed)) | st.integers(0, len(seed)))])
    found = by_reads(damaged)
    assert found is None or (found.width > 0 and found.height > 0)
    assert image_size(damaged) == found
