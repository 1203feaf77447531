import io
import random

import numpy as np
import pytest
from PIL import Image
from variants import with_variants
from videos import VIDEOS, ffmpeg, make, turned

from touchfs.core.errors import FormatError, TouchfsError
from touchfs.core.extent import Memory
from touchfs.media.video.webp_frames import webp_frames


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return tmp_path_factory.mktemp("videos")


def all_frames(data, pool, **options):
    return [
        np.array(Image.open(io.BytesIO(frame)))
        for part in webp_frames(Memory(data), pool, **options)
        for frame in part.frames
    ]


def shown_by_ffmpeg(path, size):
    raw = ffmpeg(
        "-i", str(path), "-map", "0:v:0", "-fps_mode", "passthrough", "-pix_fmt", "rgb24", "-f", "rawvideo", "-"
    )
    return np.frombuffer(raw, np.uint8).reshape(-1, *size, 3)


def as_webp(frame):
    data = io.BytesIO()
    Image.fromarray(frame).save(data, "WEBP", quality=95)
    return np.array(Image.open(data))


def difference(frames, others):
    """The mean difference of pixels in the worst frame of some: to code a frame for it takes a moment."""
    pairs = list(zip(frames, others, strict=True))[::5]
    return max(float(np.abs(frame.astype(int) - as_webp(other)).mean()) for frame, other in pairs)


# `test_video_frames.py` decodes all codings.
@pytest.mark.parametrize("name", with_variants(VIDEOS, lambda name: name in ("h264.mp4", "vp9.webm", "prores.mov")))
def test_frames_are_those_that_ffmpeg_shows(directory, pool, name):
    path = make(directory, name, *VIDEOS[name], size="96x64", seconds=2)
    frames = all_frames(path.read_bytes(), pool, quality=95)
    assert difference(frames, shown_by_ffmpeg(path, (64, 96))) < 2


@pytest.mark.parametrize("degrees", [90, 180, 270])
def test_turned_videos_are_upright(tmp_path, pool, degrees):
    make(tmp_path, "h264.mp4", seconds=1)
    path = turned(tmp_path, degrees)
    frames = all_frames(path.read_bytes(), pool, quality=95)
    height, width = frames[0].shape[:2]
    assert (width, height) == ((160, 120) if degrees == 180 else (120, 160))
    assert difference(frames[:5], shown_by_ffmpeg(path, (height, width))[:5]) < 2


def test_resize_makes_larger_frames_square(directory, pool):
    data = make(directory, "h264.mp4", *VIDEOS["h264.mp4"], size="96x64", seconds=2).read_bytes()
    assert {frame.shape for frame in all_frames(data, pool, resize=32)} == {(32, 32, 3)}
    assert {frame.shape for frame in all_frames(data, pool, resize=96)} == {(64, 96, 3)}


def test_frames_come_in_parts(tmp_path, pool):
    data = make(tmp_path, "h264.mp4", size="640x480", seconds=1).read_bytes()
    parts = list(webp_frames(Memory(data), pool, resize=32))
    assert len(parts) > 1
    assert sum(len(part.frames) for part in parts) == 25
    for _ in range(2):
        for part in webp_frames(Memory(data), pool, resize=32):
            assert part.frames == parts[0].frames
            break  # the child is killed, and the next request gets another


@pytest.mark.parametrize("trials", [4, pytest.param(12, marks=pytest.mark.soak)])
@pytest.mark.parametrize("name", with_variants(("h264.mp4", "vp9.webm", "mjpeg.avi"), lambda name: name == "h264.mp4"))
def test_damaged_videos(directory, pool, name, trials):
    data = make(directory, name, *VIDEOS[name], size="96x64", seconds=2).read_bytes()
    chooser = random.Random(name)
    for _ in range(trials):
        damaged = bytearray(data[: chooser.choice((len(data), chooser.randrange(len(data))))])
        for _ in range(chooser.choice((0, 1, 50)) if damaged else 0):
            damaged[chooser.randrange(len(damaged))] ^= 1 << chooser.randrange(8)
        try:
            assert 0 < len(all_frames(bytes(damaged), pool)) <= 50
        except FormatError as error:
            assert "\n" not in str(error)
    assert len(all_frames(data, pool)) == 50


@pytest.mark.parametrize("data", [b"", b"RIFF", b"fLaC" + bytes(100), b"no video at all, but some text"])
def test_other_files_are_no_videos(pool, data):
    with pytest.raises(TouchfsError):
        list(webp_frames(Memory(data), pool))
