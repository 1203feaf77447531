"""Frames of TIFF files are cut out without decoding them, or encoded again without loss, and counted."""

import io
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from interleaved_tars import make_image, make_tiff, make_wds_tar
from item_rows import batch_of, contents, errors, image_row, ranges_of
from PIL import Image

from touchfs.interleaved.items.materialize import materialize
from touchfs.interleaved.items.tiff_frames import cut_frames


def pixels(data, frame=0):
    with Image.open(io.BytesIO(data)) as image:
        image.seek(frame)
        return np.asarray(image.convert("RGB"))


def count_frames(data):
    with Image.open(io.BytesIO(data)) as image:
        return image.n_frames


def frame_rows(tar, name, numbers):
    offset, size = ranges_of(tar)[name]
    return [image_row(i, str(tar), name, offset, size, number) for i, number in enumerate(numbers)]


@pytest.mark.parametrize("compression", [None, "jpeg", "tiff_lzw", "tiff_adobe_deflate", "packbits"])
@pytest.mark.parametrize("access", ["range", "tar", "direct"])
def test_each_frame_is_a_file_of_its_own_with_the_same_pixels(tmp_path, compression, access):
    tiff = make_tiff(4, compression)
    tar = make_wds_tar(tmp_path / "x.tar", [("a.tiff", tiff)])
    (tmp_path / "a.tiff").write_bytes(tiff)
    rows = {
        "range": frame_rows(tar, "a.tiff", [0, 3, 1, 1]),
        "tar": [image_row(i, str(tar), "a.tiff", frame=number) for i, number in enumerate([0, 3, 1, 1])],
        "direct": [image_row(i, "a.tiff", frame=number) for i, number in enumerate([0, 3, 1, 1])],
    }[access]
    found = materialize(batch_of(rows, str(tar)))
    assert errors(found) == [None] * 4
    for number, content in zip([0, 3, 1, 1], contents(found), strict=True):
        assert content is not None
        assert count_frames(content) == 1
        np.testing.assert_array_equal(pixels(content), pixels(tiff, number))
    assert found.reencoded_frames == 0


def test_a_lossy_frame_keeps_its_compressed_data(tmp_path):
    """The original decodes it and compresses it as JPEG again, which loses a second time."""
    tiff = make_tiff(3, "jpeg")
    tar = make_wds_tar(tmp_path / "x.tar", [("a.tiff", tiff)])
    with Image.open(io.BytesIO(tiff)) as image:
        image.seek(2)
        tags = image.tag_v2
        strips = [tiff[offset : offset + size] for offset, size in zip(tags[273], tags[279], strict=True)]
    (content,) = contents(materialize(batch_of(frame_rows(tar, "a.tiff", [2]), str(tar))))
    assert content is not None
    assert all(strip in content for strip in strips)


def test_a_frame_that_the_file_does_not_have(tmp_path):
    tar = make_wds_tar(tmp_path / "x.tar", [("a.tiff", make_tiff(2))])
    found = materialize(batch_of(frame_rows(tar, "a.tiff", [1, 2]), str(tar)))
    assert errors(found) == [None, "failed to extract frame 2 from 'a.tiff'"]
    assert contents(found)[1] is None


def test_a_damaged_file_is_an_error_and_not_the_bytes_of_all_frames(tmp_path):
    """The original's reader keeps the whole file as the bytes of the row."""
    tar = make_wds_tar(tmp_path / "x.tar", [("a.tiff", make_tiff(3)[:50])])
    found = materialize(batch_of(frame_rows(tar, "a.tiff", [0, 1]), str(tar)))
    assert contents(found) == [None, None]
    assert errors(found) == [f"failed to extract frame {number} from 'a.tiff'" for number in (0, 1)]


def test_what_is_no_tiff_stays_as_it_is(tmp_path):
    png = make_image("png")
    tar = make_wds_tar(tmp_path / "x.tar", [("a.tiff", png)])
    assert contents(materialize(batch_of(frame_rows(tar, "a.tiff", [0, 7]), str(tar)))) == [png, png]


@pytest.mark.parametrize("compression", [None, "jpeg"])
def test_the_only_frame_of_a_file_is_the_file(tmp_path, compression):
    tiff = make_tiff(1, compression)
    tar = make_wds_tar(tmp_path / "x.tar", [("a.tiff", tiff)])
    assert contents(materialize(batch_of(frame_rows(tar, "a.tiff", [0]), str(tar)))) == [tiff]


def shared_strips():
    """A TIFF of two grey frames of 100 x 100, whose strips all are the same 5000 bytes. Its frames are not copied, as
    copies could be much larger than the file.
    """
    data = np.random.default_rng(0).integers(0, 256, 5000, dtype=np.uint8).tobytes()
    lists = struct.pack("<4I", 8, 8, 5000, 5000)
    at = 8 + len(data)
    first = at + len(lists)
    tags = ((256, 100), (257, 100), (258, 8), (259, 1), (262, 1), (273, at), (277, 1), (278, 50), (279, at + 8))
    entries = b"".join(struct.pack("<HHII", tag, 4, 2 if tag in (273, 279) else 1, value) for tag, value in tags)
    directory = struct.pack("<H", len(tags)) + entries
    second = first + len(directory) + 4
    tiff = struct.pack("<2sHI", b"II", 42, first) + data + lists
    return tiff + directory + struct.pack("<I", second) + directory + bytes(4)


def test_a_frame_that_cannot_be_copied_is_encoded_again_without_loss_and_counted(tmp_path):
    tiff = shared_strips()
    tar = make_wds_tar(tmp_path / "x.tar", [("a.tiff", tiff), ("b.tiff", make_tiff(2))])
    rows = [*frame_rows(tar, "a.tiff", [0, 1]), *frame_rows(tar, "b.tiff", [1])]
    found = materialize(batch_of(rows, str(tar)))
    assert errors(found) == [None] * 3
    for number, content in enumerate(contents(found)[:2]):
        np.testing.assert_array_equal(pixels(content), pixels(tiff, number))
    assert found.reencoded_frames == 2


def test_a_frame_over_the_limit_is_not_decoded(tmp_path):
    tar = make_wds_tar(tmp_path / "x.tar", [("a.tiff", shared_strips())])
    found = materialize(batch_of(frame_rows(tar, "a.tiff", [1]), str(tar)), max_decoded=30_000)
    assert errors(found) == ["failed to extract frame 1 from 'a.tiff'"]


@given(st.lists(st.tuples(st.integers(0, 300), st.sampled_from(range(256))), min_size=1, max_size=6))
def test_damage_of_a_file_whose_frames_are_decoded_is_a_frame_or_none(damage):
    tiff = bytearray(shared_strips())
    for at, value in damage:
        tiff[-1 - at % len(tiff)] = value
    for frame in cut_frames(bytes(tiff), {0, 1}, 10**6).values():
        assert frame is None or frame.data


def test_frames_that_share_their_data_do_not_multiply(tmp_path):
    """A small file may have 65,536 frames of all of its bytes."""
    data = make_image("png")[:100].ljust(10_000, b"x")
    tags = ((256, 100), (257, 100), (258, 8), (259, 1), (262, 1), (273, 8), (277, 1), (278, 100), (279, len(data)))
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags)
    size = 2 + len(entries) + 4
    first = 8 + len(data)
    tiff = struct.pack("<2sHI", b"II", 42, first) + data
    for number in range(20):
        following = first + (number + 1) * size if number < 19 else 0
        tiff += struct.pack("<H", len(tags)) + entries + struct.pack("<I", following)
    tar = make_wds_tar(tmp_path / "x.tar", [("a.tiff", tiff)])
    found = materialize(batch_of(frame_rows(tar, "a.tiff", range(20)), str(tar)), max_decoded=50_000)
    assert [content is not None for content in contents(found)] == [True] * 4 + [False] * 16
