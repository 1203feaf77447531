"""Images, arrays and videos of samples."""

import io
import pickle
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

import touchfs
from touchfs.core.errors import FormatError, MissingExtraError, NotFoundError, UsageError
from touchfs.write import TarWriter


def encoded(save) -> bytes:
    file = io.BytesIO()
    save(file)
    return file.getvalue()


PNG = encoded(lambda file: Image.new("RGB", (4, 3), (9, 0, 0)).save(file, "PNG"))


@pytest.fixture(scope="module")
def ds(tmp_path_factory):
    place = tmp_path_factory.mktemp("decoded")
    source = ["-f", "lavfi", "-i", "testsrc=duration=2:size=32x16:rate=10"]
    subprocess.run(["ffmpeg", "-v", "error", *source, place / "x.mp4"], check=True)
    with TarWriter(place / "x.tar") as tar:
        array = encoded(lambda file: np.save(file, np.arange(3)))
        segments = b'{"segments": [{"start": 0.5, "end": 1.0}, {"start": 1.5, "end": 2}]}'
        tar.add("all", {"png": PNG, "npy": array, "mp4": (place / "x.mp4").read_bytes(), "json": segments})
        one = encoded(lambda file: np.savez_compressed(file, a=np.arange(4)))
        two = encoded(lambda file: np.savez(file, a=np.arange(4), b=np.arange(2)))
        tar.add("one", {"npz": one, "jpg": b"\xff\xd8\xff and no more"})
        tar.add("two", {"npz": two, "left.png": PNG, "right.png": PNG})
        tar.add("bad", {"npz": one[:-30], "npy": b"no array", "txt": b"text"})
    return touchfs.open(place / "x.tar")


def test_images_and_arrays(ds):
    image = ds["all"].image()
    assert (image.size, image.getpixel((0, 0))) == ((4, 3), (9, 0, 0))
    assert ds["two"].image("left.png").size == (4, 3)
    assert ds["all"].array().tolist() == [0, 1, 2]
    assert ds["one"].array().tolist() == ds["one"].array("npz").tolist() == [0, 1, 2, 3]
    assert pickle.loads(pickle.dumps(ds["all"])).image().size == (4, 3)


def test_frames_of_videos_and_of_segments(ds):
    frames = ds["all"].video()
    assert (len(frames), frames[3].shape, frames[3].dtype) == (20, (16, 32, 3), np.uint8)
    assert (frames[2:5].shape, frames[:0].shape[0]) == ((3, 16, 32, 3), 0)
    assert np.array_equal(frames[2:5][1], frames[3])
    assert frames.seconds(3) == pytest.approx(0.3)
    assert len([*frames]) == 20
    assert len(ds["all"].video(fps=2)) == 4
    segment = ds.segments()[1].video()
    assert (len(segment), segment.seconds(0)) == (5, 1.5)
    assert np.array_equal(segment[0], frames[15])
    assert frames.jpeg(-1).startswith(b"\xff\xd8")


@pytest.mark.parametrize(
    ("ask", "error", "message"),
    [
        (lambda ds: ds["bad"].image(), NotFoundError, r"it has no image: there are \.npz, \.npy, \.txt"),
        (lambda ds: ds["bad"].video(), NotFoundError, "it has no video: there are"),
        (lambda ds: ds["bad"].audio(), NotFoundError, "it has no recording: there are"),
        (lambda ds: ds["two"].image(), UsageError, "name one of left.png, right.png"),
        (lambda ds: ds["two"].array(), UsageError, r"2 arrays \(a, b\): numpy.load\(io.BytesIO\(sample\['npz'\]\)\)"),
        (lambda ds: ds["bad"].array(), UsageError, "name one of npz, npy"),
        (lambda ds: ds["bad"].array("npz"), FormatError, "not a .npz"),
        (lambda ds: ds["bad"].array("npy"), FormatError, "not a .npy"),
        (lambda ds: ds["one"].image(), FormatError, "not an image that Pillow can read"),
        (lambda ds: ds["all"].image("jpg"), NotFoundError, r"no file \.jpg: there are"),
        (lambda ds: ds["all"].video("png")[0], FormatError, r"it begins with .*sample 'all'"),
        (lambda ds: pickle.loads(pickle.dumps(ds["all"])).video(), UsageError, "where it is stored"),
        (lambda ds: ds["all"]["jpg"], KeyError, r"no file \.jpg: there are \.png, \.npy, \.mp4, \.json"),
        (lambda ds: ds["none"], KeyError, "no sample has the key 'none'"),
    ],
)
def test_what_cannot_be_had_is_a_line(ds, ask, error, message):
    with pytest.raises(error, match=message):
        ask(ds)


def test_without_pillow_the_extra_is_named(ds, monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(MissingExtraError, match=r"images need Pillow: pip install 'touchfs-shards\[image\]'"):
        ds["all"].image()
    with pytest.raises(MissingExtraError, match=r"frames of videos need Pillow: .*\[video\]"):
        ds["all"].video()[0]


def test_names_that_a_shell_offers(ds):
    assert ds._ipython_key_completions_() == ["all", "one", "two", "bad"]
    assert ds["two"]._ipython_key_completions_() == ["npz", "left.png", "right.png"]
    assert ds.filter(len)._ipython_key_completions_() == []
    assert repr(ds.segments()[1]) == "<segments/x: 'all/0001', ordinal=0, mp4+json>"
