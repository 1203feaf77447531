"""Damaged and hostile videos: an error of one line, or frames; never a hang or a crash."""

import random
import struct
import zlib
from dataclasses import replace

import pytest
from videos import X264, make

from touchfs.core.errors import FormatError, TouchfsError, UsageError
from touchfs.core.extent import Extent, Memory
from touchfs.media.decoder.pool import DecodePool
from touchfs.media.video.frame_index import frames_in
from touchfs.media.video.probe_video import probe_video
from touchfs.media.video.remux import remux
from touchfs.media.video.render_frames import render_frames
from touchfs.media.video.video_info import VideoInfo

VIDEOS = {
    "h264.mp4": (*X264, "-c:a", "aac"),
    "vp9.webm": ("-c:v", "libvpx-vp9", "-b:v", "100k", "-cpu-used", "8", "-deadline", "realtime", "-c:a", "libopus"),
    "mpeg4.avi": ("-c:v", "mpeg4", "-g", "30", "-c:a", "pcm_s16le"),
    "mjpeg.mov": ("-c:v", "mjpeg", "-c:a", "pcm_s16le"),
    "vp8.mkv": ("-c:v", "libvpx", "-b:v", "100k", "-cpu-used", "8", "-c:a", "libvorbis"),
}


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return tmp_path_factory.mktemp("videos")


def made(directory, name) -> bytes:
    return make(directory, name, *VIDEOS[name], size="64x48", seconds=3).read_bytes()


def outcome(data: bytes, pool: DecodePool) -> int | TouchfsError:
    """The number of frames, or the error. A copy and some frames are made of them."""
    content = Memory(data)
    try:
        info = probe_video(content, pool)
        frames = frames_in(info, 0.5, 2)
        if len(frames):
            remux(info, 0.5, 2).content(Extent(content, 0, content.size)).read(0, 1 << 30)
            jpegs = list(render_frames(content, info, frames[::9], pool))
            assert all(jpeg[:2] in (b"\xff\xd8", b"") for jpeg in jpegs)
            assert len(jpegs) == len(frames[::9])
    except FormatError as error:
        assert "\n" not in str(error)
        return error
    return len(frames)


@pytest.mark.parametrize("trials", [8, pytest.param(25, marks=pytest.mark.soak)])
@pytest.mark.parametrize("name", VIDEOS)
def test_flipped_bytes(directory, pool, name, trials):
    data = made(directory, name)
    whole = outcome(data, pool)
    assert whole == 37 or whole == 38
    chooser = random.Random(name)
    for _ in range(trials):
        damaged = bytearray(data)
        for _ in range(chooser.choice((1, 1, 5, 50))):
            near = chooser.choice((400, 4000, len(data)))
            position = chooser.randrange(min(len(data), near))
            if name.endswith(("mp4", "mov")) and chooser.random() < 0.5:  # their tables are at the end
                position = len(data) - 1 - position
            damaged[position] ^= 1 << chooser.randrange(8)
        outcome(bytes(damaged), pool)
    assert outcome(data, pool) == whole


@pytest.mark.parametrize("name", VIDEOS)
def test_truncated(directory, pool, name):
    data = made(directory, name)
    chooser = random.Random(name)
    for size in (0, 1, 11, 12, 40, 100, *(chooser.randrange(len(data)) for _ in range(8)), len(data) - 1):
        outcome(data[:size], pool)
    half = len(data) // 2
    outcome(data[:half] + bytes(1000) + data[half + 1000 :], pool)
    outcome(data[:half] + data[half + 1000 :], pool)


def test_damage_in_one_group_of_pictures_leaves_the_others(directory, pool):
    data = made(directory, "h264.mp4")
    info = probe_video(Memory(data), pool)
    offset = int(info.packets.offsets[0])
    content = Memory(data[: offset + 4] + bytes(400) + data[offset + 404 :])
    after = frames_in(info, 2, 3)
    assert list(render_frames(content, info, after, pool)) == list(render_frames(Memory(data), info, after, pool))


def test_counts_that_no_bytes_hold(directory, pool):
    data = bytearray(made(directory, "h264.mp4"))
    table = data.index(b"stsz")
    struct.pack_into(">II", data, table + 8, 1, 0x7FFFFFFF)  # two billion packets of a byte
    assert isinstance(outcome(bytes(data), pool), TouchfsError)
    struct.pack_into(">II", data, table + 8, 0, 0x0FFFFFFF)
    assert isinstance(outcome(bytes(data), pool), TouchfsError)


def test_packets_that_share_bytes_are_refused(directory, pool):
    """All packets are the same large range: a small file would be read as a very large one."""
    data = bytearray(made(directory, "mjpeg.mov"))
    table = data.index(b"stsz")
    (count,) = struct.unpack_from(">I", data, table + 12)
    struct.pack_into(f">{count}I", data, table + 16, *[len(data) // 2] * count)
    chunks = data.index(b"stco")
    (count,) = struct.unpack_from(">I", data, chunks + 8)
    struct.pack_into(f">{count}I", data, chunks + 12, *[40] * count)
    assert isinstance(outcome(bytes(data), pool), TouchfsError)


def test_kept_information_may_be_planted(directory, pool):
    """With right checksums and wrong columns: an error, or frames of this file."""
    data = made(directory, "h264.mp4")
    content = Memory(data)
    info = probe_video(content, pool)
    chooser = random.Random(1)

    def planted(table):
        times, flags, durations = table.times.copy(), table.flags.copy(), table.durations.copy()
        for _ in range(chooser.choice((1, 5, len(table)))):
            place = chooser.randrange(len(table))
            times[place] = chooser.randrange(-(2**52), 2**52) >> chooser.choice((0, 30, 50))
            flags[place] = chooser.randrange(4)
            durations[place] = chooser.randrange(2**32)
        return replace(table, times=times, flags=flags, durations=durations)

    for _ in range(100):
        try:
            wrong = replace(
                info, packets=planted(info.packets), sound=replace(info.sound, packets=planted(info.sound.packets))
            )
            again = VideoInfo.from_bytes(wrong.to_bytes(), len(data))
            frames = frames_in(again, 0, 2)
            remux(again, 0, 2)
            list(render_frames(content, again, frames[:3], pool))
        except (FormatError, UsageError) as error:
            assert "\n" not in str(error)


def test_other_descriptions_than_of_videos_are_refused(directory, pool):
    data = made(directory, "h264.mp4")
    kept = probe_video(Memory(data), pool).to_bytes()
    (size,) = struct.unpack_from("<I", kept, 12)
    text = kept[16 : 16 + size]
    for old, new in (
        (b'"width": 64', b'"width": 0'),
        (b'"width": 64', b'"width": 99999'),
        (b'"width": 64', b'"width": []'),
        (b'"width": 64, ', b""),
        (b'"time_base": [1, ', b'"time_base": [0, '),
        (b'"time_base": [1, 12800', b'"time_base": [1, 0'),
        (b'"start": [0, 1]', b'"start": [1e400, 1]'),
        (b'"brand": "isom"', b'"brand": "none"'),
        (b'"packets": 75', b'"packets": 99999999999'),
        (b'"packets": 75', b'"packets": -1'),
        (b'"packets": 75', b'"packets": 74'),
        (b'"sound": {', b'"sound": null, "other": {'),
        (b'"blobs": [', b'"blobs": [-1, '),
        (b'"blobs": [', b'"blobs": [[], '),
        (b"[", b"{"),
    ):
        assert old in text
        wrong = text.replace(old, new, 1)
        rest = wrong + kept[16 + size :]
        planted = kept[:8] + struct.pack("<II", zlib.crc32(rest), len(wrong)) + rest
        if b"null" in new:  # a video without sound
            assert VideoInfo.from_bytes(planted, len(data)).sound is None
            continue
        with pytest.raises(FormatError):
            VideoInfo.from_bytes(planted, len(data))
