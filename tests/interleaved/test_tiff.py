"""Frames of a TIFF become files of their own: same compressed bytes, same pixels. Pillow (libtiff) is the oracle."""

import io
import struct

import numpy as np
import pytest
from checked_source import CheckedSource
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from touchfs.core.errors import FormatError
from touchfs.core.extent import drive
from touchfs.interleaved.tiff import TiffFrame, frames

COMPRESSIONS = ["raw", "packbits", "tiff_lzw", "tiff_deflate", "tiff_adobe_deflate", "zstd", "jpeg"]
ORDERS = ["<", ">"]


def find(data: bytes, numbers=None) -> list[TiffFrame]:
    return drive(frames(len(data), numbers), CheckedSource(data))


def copy(data: bytes, frame: TiffFrame) -> bytes:
    content = frame.content(CheckedSource(data))
    assert content.size == frame.size
    return bytes(content.read(0, content.size))


def pixels(data: bytes, number: int = 0) -> np.ndarray:
    image = Image.open(io.BytesIO(data))
    image.seek(number)
    return np.asarray(image)


def noise(number: int, mode: str = "RGB", size: tuple[int, int] = (70, 50)) -> Image.Image:
    """An image that no two frames share, and that JPEG cannot store without loss."""
    rng = np.random.default_rng(number)
    width, height = size[0] + number, size[1]
    if mode == "I;16B":
        return Image.frombytes(mode, (width, height), rng.bytes(width * height * 2))
    return Image.fromarray(rng.integers(0, 256, (height, width, 3), dtype=np.uint8)).convert(mode)


def save(images: list[Image.Image], **options) -> bytes:
    file = io.BytesIO()
    images[0].save(file, "TIFF", save_all=True, append_images=images[1:], **options)
    return file.getvalue()


def build(order: str, is_big: bool, entries: list[tuple[int, int, list[int]]], chunks: list[bytes], tags=(273, 279)):
    """A TIFF by hand, one frame: `entries` are (tag, type, integers); chunks come first, then the directory."""
    codes, sizes = {3: "H", 4: "I", 16: "Q"}, {3: 2, 4: 4, 16: 8}
    word, slot = ("Q", 8) if is_big else ("I", 4)
    offsets, body, start = [], b"", 16
    for chunk in chunks:
        offsets.append(start + len(body))
        body += chunk
    kind = 16 if is_big else 4
    entries = sorted([*entries, (tags[0], kind, offsets), (tags[1], kind, [len(chunk) for chunk in chunks])])
    fields = []
    for tag, type_, values in entries:
        packed = struct.pack(f"{order}{len(values)}{codes[type_]}", *values)
        assert len(packed) == sizes[type_] * len(values)
        if len(packed) > slot:
            place, body = start + len(body), body + packed
            packed = struct.pack(order + word, place)
        fields.append(struct.pack(order + "HH" + word, tag, type_, len(values)) + packed.ljust(slot, b"\0"))
    directory = struct.pack(order + ("Q" if is_big else "H"), len(fields)) + b"".join(fields) + bytes(slot)
    first = start + len(body)
    mark = b"II" if order == "<" else b"MM"
    if is_big:
        header = mark + struct.pack(order + "HHHQ", 43, 8, 0, first)
    else:
        header = mark + struct.pack(order + "HI", 42, first)
    return header.ljust(start, b"\0") + body + directory


def gray(width: int, height: int) -> list[tuple[int, int, list[int]]]:
    """Entries of an uncompressed image of one byte a pixel."""
    return [(256, 4, [width]), (257, 4, [height]), (258, 3, [8]), (259, 3, [1]), (262, 3, [1]), (277, 3, [1])]


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("is_big", [False, True])
def test_every_frame_is_a_file_with_the_same_pixels(compression, is_big):
    data = save([noise(number) for number in range(3)], compression=compression, big_tiff=is_big)
    found = find(data)
    assert [frame.number for frame in found] == [0, 1, 2]
    for frame in found:
        own = copy(data, frame)
        image = Image.open(io.BytesIO(own))
        assert image.n_frames == 1
        assert image.size == (frame.width, frame.height)
        assert np.array_equal(pixels(own), pixels(data, frame.number))


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGBA", "CMYK", "I;16B", "YCbCr"])
def test_modes_of_images(mode):
    data = save([noise(number, mode) for number in range(2)])
    for frame in find(data):
        assert np.array_equal(pixels(copy(data, frame)), pixels(data, frame.number))


@pytest.mark.parametrize(("mode", "compression"), [("1", "group3"), ("1", "group4"), ("L", "jpeg")])
def test_compressions_of_one_channel(mode, compression):
    data = save([noise(number, mode) for number in range(2)], compression=compression)
    for frame in find(data):
        assert np.array_equal(pixels(copy(data, frame)), pixels(data, frame.number))


def test_jpeg_is_not_encoded_again():
    """The original tool decodes and encodes a frame again: its pixels differ by up to 22."""
    data = save([noise(number) for number in range(2)], compression="jpeg", quality=60)
    own = copy(data, find(data)[1])
    stored = Image.open(io.BytesIO(own)).tag_v2
    for offset, length in zip(stored[273], stored[279], strict=True):
        assert own[offset : offset + length] in data


def test_metadata_stays_and_directories_below_are_left_out():
    exif = Image.Exif()
    exif[270] = "a description of the picture"
    exif.get_ifd(34665)[36867] = "2026:01:02 03:04:05"
    profile = bytes(range(256)) * 3 + b"odd"
    data = save([noise(0), noise(1)], exif=exif, icc_profile=profile, dpi=(300, 300))
    image = Image.open(io.BytesIO(copy(data, find(data)[0])))
    assert image.info["dpi"] == (300, 300)
    assert image.info["icc_profile"] == profile
    assert image.tag_v2[270] == "a description of the picture"
    assert 34665 not in image.tag_v2


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("is_big", [False, True])
def test_tiles_of_both_byte_orders(order, is_big):
    rng = np.random.default_rng(0)
    tiles = [rng.bytes(16 * 16) for _ in range(6)]
    entries = [*gray(40, 30), (322, 3, [16]), (323, 3, [16])]
    data = build(order, is_big, entries, tiles, tags=(324, 325))
    (frame,) = find(data)
    own = copy(data, frame)
    assert own[:4] == data[:4]
    assert own.endswith(b"".join(tiles))
    if not (is_big and order == ">"):  # Pillow cannot read it
        assert pixels(own).shape == (30, 40)
        assert np.array_equal(pixels(own), pixels(data))


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("is_big", [False, True])
@pytest.mark.parametrize("count", [1, 2, 5])
def test_strips_of_both_byte_orders(order, is_big, count):
    rows = [bytes([number]) * 30 for number in range(count)]
    data = build(order, is_big, [*gray(10, 3 * count), (278, 4, [3])], rows)
    own = copy(data, find(data)[0])
    assert own.endswith(b"".join(rows))
    if not (is_big and order == ">"):  # Pillow cannot read it
        assert np.array_equal(pixels(own), pixels(data))
        assert pixels(own)[::3, 0].tolist() == list(range(count))


def test_some_frames_by_number():
    data = save([noise(number) for number in range(5)])
    all_frames = find(data)
    assert find(data, [3, 1]) == [all_frames[1], all_frames[3]]
    assert find(data, [4, 5, 10**9]) == [all_frames[4]]
    assert find(data, []) == []


def test_pixels_are_not_read():
    data = save([noise(number, size=(500, 500)) for number in range(3)])
    file = CheckedSource(data)
    drive(frames(len(data)), file)
    assert file.read_bytes < 10_000 < len(data)


def test_a_copy_of_a_copy_is_the_copy():
    data = save([noise(0), noise(1)], compression="jpeg")
    own = copy(data, find(data)[1])
    assert copy(own, find(own)[0]) == own


@pytest.mark.parametrize(
    ("entries", "chunks", "tags", "reason"),
    [
        ([*gray(4, 4)[:3], (259, 3, [6])], [bytes(16)], (273, 279), "old-style JPEG"),
        (gray(4, 4), [bytes(16)], (273, 999), "where its strips or tiles are"),
        (gray(4, 4)[1:], [bytes(16)], (273, 279), "does not state its width"),
    ],
)
def test_frames_that_cannot_be_copied_say_why(entries, chunks, tags, reason):
    (frame,) = find(build("<", False, entries, chunks, tags))
    assert reason in frame.uncopyable
    assert (frame.pieces, frame.size) == ((), 0)


def test_strips_that_end_after_the_file():
    data = save([noise(0), noise(1)], compression="raw")
    short = data.replace(struct.pack("<HHII", 279, 4, 1, 70 * 50 * 3), struct.pack("<HHII", 279, 4, 1, 10**9))
    first, second = find(short)
    assert first.uncopyable == "its strips or tiles end after the file"
    assert second.uncopyable is None


def test_a_small_file_cannot_make_a_huge_frame():
    """Every strip is the same range: 4,000 times 4 kB."""
    count = 4_000
    data = build("<", False, gray(10, 10), [b""] * (count - 1) + [bytes(4096)])
    offsets = struct.pack(f"<{count}I", *[16] * count)
    sizes = struct.pack(f"<{count - 1}I", *[0] * (count - 1)) + struct.pack("<I", 4096)
    data = data.replace(sizes, struct.pack(f"<{count}I", *[4096] * count))
    assert offsets in data
    assert find(data)[0].uncopyable == "its strips or tiles overlap"


def test_a_loop_of_frames():
    data = bytearray(build("<", False, gray(4, 4), [bytes(16)]))
    data[-4:] = data[4:8]
    with pytest.raises(FormatError, match="form a loop"):
        find(bytes(data))
    assert len(find(bytes(data), [0])) == 1


@pytest.mark.parametrize("data", [b"", b"II", b"II*\0", b"\x89PNG\r\n\x1a\n________", b"II+\0\x04\0\0\0" + bytes(8)])
def test_what_is_no_tiff(data):
    with pytest.raises(FormatError, match="not a TIFF"):
        find(data)


@pytest.mark.parametrize("end", [8, 9, 100])
def test_a_file_that_is_cut_short(end):
    data = build("<", False, gray(4, 4), [bytes(16)])
    with pytest.raises(FormatError, match="directory of a frame"):
        find(data[:-end])


SEEDS = [
    save([noise(number, size=(20, 10)) for number in range(2)], compression="jpeg"),
    save([noise(0, size=(20, 10))], compression="tiff_lzw", big_tiff=True),
    build(">", False, [*gray(40, 30), (322, 3, [16]), (323, 3, [16])], [bytes(256)] * 6, (324, 325)),
]


@given(st.sampled_from(SEEDS), st.data())
def test_damage_gives_frames_within_the_file_or_an_error(seed, data):
    damaged = bytearray(seed)
    for _ in range(data.draw(st.integers(1, 6))):
        place = data.draw(st.integers(0, min(len(seed), 600) - 1) | st.integers(0, len(seed) - 1))
        damaged[place] = data.draw(st.sampled_from([0, 1, 2, 4, 255]) | st.integers(0, 255))
    damaged = bytes(damaged[: data.draw(st.just(len(seed)) | st.integers(0, len(seed)))])
    try:
        found = find(damaged)
    except FormatError:
        return
    for frame in found:
        assert (frame.uncopyable is None) == bool(frame.pieces)
        assert frame.size <= 3 * len(damaged) + 1000
        if frame.uncopyable is None:
            own = copy(damaged, frame)
            assert len(own) == frame.size
            assert copy(own, find(own)[0]) == own
