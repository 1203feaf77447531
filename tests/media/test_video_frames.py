import io
import random

import av
import numpy as np
import pytest
from spans import to_seconds
from videos import OFTEN, ffmpeg, frame_times, make, make_all, turned, variable

from touchfs.core.errors import FormatError, UsageError
from touchfs.core.extent import Memory
from touchfs.media.video.frame_index import frames_in
from touchfs.media.video.probe_video import probe_video
from touchfs.media.video.render_frames import render_frames
from touchfs.media.video.video_info import VideoInfo

NAMES = ["h264.mp4", "open.mp4", "hevc.mkv", "vp9.webm", "vp8.webm", "av1.mkv", "reordered.avi", "mjpeg.avi"]
NAMES += ["mpeg2.mkv", "theora.mkv", "ffv1.mkv", "prores.mov", "ntsc.mp4", "variable.mp4"]


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    place = tmp_path_factory.mktemp("videos")
    make_all(place, OFTEN)
    return place


def opened(directory, name, pool):
    path = variable(directory) if name == "variable.mp4" else make(directory, name)
    content = Memory(path.read_bytes())
    return path, content, probe_video(content, pool)


def pixels(jpeg: bytes) -> np.ndarray:
    with av.open(io.BytesIO(jpeg), format="jpeg_pipe") as container:
        (frame,) = container.decode(video=0)
        return frame.to_ndarray(format="rgb24").astype(int)


def pictures(path) -> np.ndarray:
    """All frames, upright, as ffmpeg's command decodes them."""
    width, height = (120, 160) if "turned-90" in path.name or "turned-270" in path.name else (160, 120)
    data = ffmpeg("-i", str(path), "-map", "0:v:0", "-vsync", "passthrough", "-f", "rawvideo", "-pix_fmt", "rgb24", "-")
    return np.frombuffer(data, np.uint8).reshape(-1, height, width, 3)


# Of each container, and of each order and length of frames. ffprobe does not know the times of reordered.avi.
@pytest.mark.parametrize(
    "name",
    ["h264.mp4", "open.mp4", "hevc.mkv", "vp9.webm", "mjpeg.avi", "prores.mov", "ntsc.mp4", "variable.mp4"],
)
def test_frames_are_those_whose_time_is_in_the_span(directory, pool, name):
    path, _, info = opened(directory, name, pool)
    times = frame_times(path)
    assert len(frames_in(info, 0, 100)) == len(times)
    chooser = random.Random(name)
    for _ in range(20):
        start = chooser.uniform(0, 11)
        end = start + chooser.uniform(0, 3)
        if min(abs(time - edge) for time in times for edge in (start, end)) < 0.002 or info.time_base.denominator < 100:
            continue  # at an edge, times are rounded
        found = [to_seconds(info, int(frame)) for frame in frames_in(info, start, end)]
        assert found == pytest.approx([time for time in times if start <= time < end], abs=1e-3)


@pytest.mark.parametrize("name", NAMES)
def test_frames_look_like_those_that_ffmpeg_decodes(directory, pool, name):
    path, content, info = opened(directory, name, pool)
    every = frames_in(info, 0, 100)
    whole = pictures(path)
    chooser = random.Random(name)
    numbers = [chooser.randrange(len(every)) for _ in range(12)]
    for number, jpeg in zip(numbers, render_frames(content, info, every[numbers], pool, 2), strict=True):
        wanted = pixels(jpeg)
        distances = [
            np.abs(wanted - whole[near]).mean() for near in range(max(number - 2, 0), number + 3) if near < len(whole)
        ]
        assert min(distances) < 4
        assert int(np.argmin(distances)) == min(number, 2)


@pytest.mark.parametrize("degrees", [90, 180, 270])
def test_frames_are_upright(directory, pool, degrees):
    path = turned(directory, degrees)
    content = Memory(path.read_bytes())
    info = probe_video(content, pool)
    assert info.rotation in (degrees, 360 - degrees)
    (jpeg,) = render_frames(content, info, frames_in(info, 1, 1.02), pool)
    assert np.abs(pixels(jpeg) - pictures(path)[25]).mean() < 4


def test_a_frame_has_the_same_bytes_in_every_company(directory, pool):
    _, content, info = opened(directory, "h264.mp4", pool)
    frames = frames_in(info, 3, 5)
    together = list(render_frames(content, info, frames, pool))
    assert [next(iter(render_frames(content, info, [frame], pool))) for frame in frames[::7]] == together[::7]
    order = [30, 2, 2, 17, 45, 0]
    assert list(render_frames(content, info, frames[order], pool)) == [together[number] for number in order]
    small, large = (len(next(iter(render_frames(content, info, frames[:1], pool, each)))) for each in (31, 2))
    assert small < len(together[0]) < large


def test_frames_at_a_rate(directory, pool):
    _, _, info = opened(directory, "h264.mp4", pool)
    every = frames_in(info, 0, 100)
    assert list(frames_in(info, 2, 4, 5)) == list(every[50:100:5])
    # between frames: the one that is shown then
    assert list(frames_in(info, 2.03, 4.03, 5)) == list(every[50:100:5])
    assert list(frames_in(info, 2, 4, 50)) == list(np.repeat(every[50:100], 2))
    assert list(frames_in(info, 2, 4, 0.4)) == [every[50]]
    assert len(frames_in(info, 11, 20, 10)) == 10  # none after the end
    assert len(frames_in(info, -1, 1, 10)) == 10  # none before the begin
    assert len(frames_in(info, 5, 5, 10)) == len(frames_in(info, 6, 5, 10)) == 0
    _, _, info = opened(directory, "variable.mp4", pool)
    seconds = [to_seconds(info, int(frame)) for frame in frames_in(info, 0, 100)]
    for number, frame in enumerate(frames_in(info, 1, 6, 12)):
        tick = 1 + number / 12
        assert to_seconds(info, int(frame)) == max(time for time in seconds if time <= tick + 1e-9)


def test_impossible_frames_and_rates(directory, pool):
    _, content, info = opened(directory, "h264.mp4", pool)
    for fps in (0, -1, float("nan"), float("inf"), 1001):
        with pytest.raises(UsageError, match="fps="):
            frames_in(info, 0, 1, fps)
    with pytest.raises(UsageError, match="no frame has the time"):
        list(render_frames(content, info, [1], pool))
    for quality in (1, 32):
        with pytest.raises(UsageError, match="quality="):
            list(render_frames(content, info, frames_in(info, 0, 1), pool, quality))
    with pytest.raises(FormatError, match="when it was looked at"):
        list(render_frames(Memory(b"short"), info, frames_in(info, 0, 1), pool))


@pytest.mark.parametrize("name", NAMES)
def test_what_is_kept_is_the_same(directory, pool, name):
    _, content, info = opened(directory, name, pool)
    kept = info.to_bytes()
    again = VideoInfo.from_bytes(kept, content.size)
    assert again.to_bytes() == kept
    assert list(frames_in(again, 1, 9)) == list(frames_in(info, 1, 9))
    for damaged in (kept[:10], kept[:-1], kept[:40] + b"?" + kept[41:], b""):
        with pytest.raises(FormatError, match="remove it"):
            VideoInfo.from_bytes(damaged, content.size)
    with pytest.raises(FormatError, match="of a file of"):
        VideoInfo.from_bytes(kept, content.size + 1)
