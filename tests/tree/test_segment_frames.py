"""Segments of videos in the tree: an MP4 and the frames of each, in all containers and kinds of shards."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from tars import write_tar
from tree_files import names, read

sys.path.append(os.path.join(os.path.dirname(__file__), "../media"))
from spans import to_seconds
from videos import RATE, frame_times, hashes, make

import touchfs
from touchfs.containers.touchnet.writer import TouchNetWriter
from touchfs.core.errors import ChangedError, FormatError, FullError, NotFoundError
from touchfs.core.extent import Memory
from touchfs.dataset.segments import MergedSamples, SegmentSamples
from touchfs.indexing import open_dataset
from touchfs.limits import Limits
from touchfs.media.decoder.pool import DecodePool
from touchfs.media.video.frame_index import frames_in
from touchfs.media.video.probe_video import probe_video
from touchfs.media.video.render_frames import render_frames
from touchfs.posix.bounded_cache import BoundedCache
from touchfs.shard.options import Options
from touchfs.source.scratch.store import DIRECTORY_VARIABLE
from touchfs.source.scratch.write_behind import WRITE_BEHIND
from touchfs.store.shared_numbers import SharedNumbers
from touchfs.tree.inode import pack, unpack
from touchfs.tree.open_shards import WouldBlockError
from touchfs.tree.tree import Tree
from touchfs.tree.videos import frame_numbers
from touchfs.view.plan import parse_plan

# Of the second, no time is that of a frame.
SEGMENTS = [{"start": 0.52, "end": 1.76, "text": "one"}, {"start": 2.02, "end": 3.5, "text": "two"}, {"start": 11.2}]
CONTAINERS = ["h264.mp4", "fragmented.mp4", "vp9.webm", "mjpeg.mov", "reordered.avi"]
SECONDS = 12


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("videos")


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(tmp_path / "scratch"))
    return tmp_path / "scratch"


@pytest.fixture(scope="module")
def pool() -> Iterator[DecodePool]:
    with DecodePool(timeout=60) as pool:
        yield pool


def tar_of(place: Path, video: Path, segments: object = SEGMENTS) -> Path:
    metainfo = json.dumps({"segments": segments}).encode()
    return write_tar(place / "x.tar", {f"talk{video.suffix}": video.read_bytes(), "talk.json": metainfo})


def tree_of(source: Path, options: Options = Options()) -> Tree:  # noqa: B008
    dataset = open_dataset(str(source), options=options, in_memory=True)
    return Tree(dataset, range(1, len(dataset.shards) + 1))


def walk(tree: Tree, path: str) -> Iterator[tuple[str, Any]]:
    for name, entry, _ in tree.entries(tree.resolve(path).inode):
        below = f"{path}/{name.decode()}"
        yield below, entry
        if entry.is_directory:
            yield from walk(tree, below)


# The media room reads and cuts videos in all of them.
OTHERS = {"fragmented.mp4", "mjpeg.mov", "reordered.avi"}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.variant] if name in OTHERS else []) for name in CONTAINERS]
)
def test_segments_show_what_ffmpeg_shows(videos: Path, tmp_path: Path, pool: DecodePool, name: str) -> None:
    video = make(videos, name)
    tree = tree_of(tar_of(tmp_path, video))
    info = probe_video(Memory(video.read_bytes()), pool)
    times, origin = [to_seconds(info, time) for time in frames_in(info, 0, 2 * SECONDS).tolist()], 0.0
    if not name.endswith(".avi"):  # of which ffprobe knows no times
        times, origin = frame_times(video), float(info.start)
    here = "segments/x/talk"
    stems = [f"{number:04d}" for number in range(len(SEGMENTS))]
    files = [f"{stem}.{end}" for stem in stems for end in ("json", "mp4", "txt", "wav")]
    assert sorted(names(tree, here)) == sorted([*stems, *(each for each in files if each != "0002.txt")])
    # The whole video is decoded, and the frames of a span are taken by their times: an accurate seek.
    every = hashes("-i", str(video), "-vsync", "passthrough")
    assert len(every) == len(times)
    for stem, segment in zip(stems, SEGMENTS, strict=True):
        start, end = float(str(segment["start"])), float(str(segment.get("end", 2 * SECONDS)))
        copy = tmp_path / f"{stem}.mp4"
        copy.write_bytes(read(tree, f"{here}/{stem}.mp4"))
        wanted = [number for number, time in enumerate(times) if start - 1e-4 <= time - origin < end - 1e-4]
        assert hashes("-i", str(copy)) == [every[number] for number in wanted]
        # ffmpeg counts the length from the first frame on, and in fragments goes to the next key frame for the last
        # frame before it.
        if stem != "0001" and name != "fragmented.mp4":
            seek = ("-ss", str(start), "-to", str(end), "-i", str(video), "-vsync", "passthrough")
            assert hashes("-i", str(copy)) == hashes(*seek)
        assert read(tree, f"{here}/{stem}.wav")[:4] == b"RIFF"
        assert names(tree, f"{here}/{stem}") == ["frames"]
        frames = names(tree, f"{here}/{stem}/frames")
        assert frames == [f"{number:06d}.jpg" for number in range(1, len(wanted) + 1)]
        rendered = list(render_frames(Memory(video.read_bytes()), info, frames_in(info, start, end), pool))
        assert [read(tree, f"{here}/{stem}/frames/{frame}") for frame in frames] == rendered
        shown = [tree.attributes(tree.resolve(f"{here}/{stem}/frames/{frame}").inode) for frame in frames]
        assert [float(each["time"]) + origin for each in shown] == pytest.approx([times[i] for i in wanted], abs=1e-3)
        assert [each["frame"] for each in shown] == [str(number) for number in range(1, len(wanted) + 1)]


def test_frames_at_another_rate_have_a_name_that_is_not_listed(videos: Path, tmp_path: Path, pool: DecodePool) -> None:
    video = make(videos, "h264.mp4")
    tree = tree_of(tar_of(tmp_path, video))
    info = probe_video(Memory(video.read_bytes()), pool)
    for fps in (2, 0.75, 50):
        here = f"segments/x/talk/0001/frames,fps={fps:g}"
        times = frames_in(info, 2.02, 3.5, fps)
        rendered = list(render_frames(Memory(video.read_bytes()), info, times, pool))
        assert [read(tree, f"{here}/{name}") for name in names(tree, here)] == rendered
        assert tree.path(tree.resolve(f"{here}/000001.jpg").inode) == f"{here}/000001.jpg"
        assert tree.path(tree.parent(tree.resolve(here).inode)) == "segments/x/talk/0001"
    above = tree.resolve("segments/x/talk/0001").inode
    link = tree.find(above, b"frames,fps=02.50")
    assert link is not None and link.is_link and tree.link(link.inode) == b"frames,fps=2.5"
    assert tree.resolve("segments/x/talk/0001/frames,fps=02.50") == tree.find(above, b"frames,fps=2.5")
    for name in (b"frames,fps=0", b"frames,fps=1001", b"frames,fps=-1", b"frames,fps=2,fps=2", b"frames,", b"fps=2"):
        assert tree.find(above, name) is None
    directory = tree.resolve("segments/x/talk/0001/frames").inode
    for name in (b"000000.jpg", b"1.jpg", b"0000001.jpg", b"000001.png", b"000038.jpg"):
        assert tree.find(directory, name) is None
    assert tree.find(directory, b"000037.jpg") is not None
    assert names(tree, "segments/x/talk/0001") == ["frames"]


def test_a_listing_renders_nothing(videos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    requests: list[str] = []
    request = DecodePool.request

    def counted(pool: DecodePool, operation: str, *arguments: Any, **others: Any) -> Any:
        requests.append(operation)
        return request(pool, operation, *arguments, **others)

    monkeypatch.setattr(DecodePool, "request", counted)
    tree = tree_of(tar_of(tmp_path, make(videos, "h264.mp4")))
    listed = dict(walk(tree, "segments"))
    assert sum(path.endswith(".jpg") for path in listed) == 31 + 37 + 20
    assert requests == ["demux_video"]
    assert {entry.size for path, entry in listed.items() if path.endswith((".jpg", ".mp4", ".wav"))} == {None}
    # A stat of one frame decodes those that are decoded with it, and no stat of those decodes again.
    for number in range(1, 10):
        tree.resolve(f"segments/x/talk/0001/frames/{number:06d}.jpg")
    assert requests == ["demux_video", "render_frames"]
    tree.resolve("segments/x/talk/0001.mp4")
    assert requests == ["demux_video", "render_frames"], "a copy is not rendered"


def test_what_is_found_and_rendered_is_kept(
    videos: Path, tmp_path: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tar_of(tmp_path, make(videos, "h264.mp4"))
    frame = read(tree_of(source), "segments/x/talk/0000/frames/000003.jpg")
    WRITE_BEHIND.wait()
    values = sorted(scratch.glob("*.value"))
    assert len(values) == 2
    for results in ("videos._videos", "frames._jpegs"):  # as in another process
        monkeypatch.setattr(f"touchfs.form.video.{results}._outcomes", BoundedCache(1 << 20))
    monkeypatch.setattr(DecodePool, "request", lambda *_, **__: pytest.fail("it is done again"))
    assert read(tree_of(source), "segments/x/talk/0000/frames/000003.jpg") == frame
    assert sorted(scratch.glob("*.value")) == values


def test_a_thread_that_must_not_block_gets_what_is_known(videos: Path, tmp_path: Path) -> None:
    tree = tree_of(tar_of(tmp_path, make(videos, "h264.mp4")))
    directory = tree.resolve("segments/x/talk/0000/frames").inode
    with pytest.raises(WouldBlockError):
        list(tree.nonblocking.entries(directory))
    with pytest.raises(WouldBlockError):
        tree.nonblocking.find(directory, b"000001.jpg")
    frame = tree.resolve("segments/x/talk/0000/frames/000001.jpg")
    for _ in range(2):
        assert tree.nonblocking.find(directory, b"000001.jpg") == frame
        assert tree.nonblocking.entry(frame.inode) == frame
        assert len(list(tree.nonblocking.entries(directory))) == 31
        tree.content(frame.inode)  # the file is verified, for a second
        assert tree.nonblocking.content(frame.inode).size == frame.size
    movie = tree.resolve("segments/x/talk/0000.mp4")
    assert tree.nonblocking.entry(movie.inode) == movie


def test_segments_without_pictures_are_no_errors(videos: Path, tmp_path: Path) -> None:
    """A span after the end of the video, an empty one, and a recording without pictures in a container of videos."""
    segments = [{"start": 90, "end": 91}, {"start": 3, "end": 3}, {"start": 1, "end": 2}]
    tree = tree_of(tar_of(tmp_path, make(videos, "h264.mkv"), segments))
    for number in (0, 1):
        assert av.open(io.BytesIO(read(tree, f"segments/x/talk/{number:04d}.mp4"))).streams.get() == []
        assert names(tree, f"segments/x/talk/{number:04d}/frames") == []
    sound = make(videos, "sound.webm", "-vn", "-c:a", "libopus")
    tree = tree_of(tar_of(tmp_path, sound, segments))
    assert av.open(io.BytesIO(read(tree, "segments/x/talk/0002.mp4"))).streams.get() == []
    assert names(tree, "segments/x/talk/0002/frames") == []
    assert len(read(tree, "segments/x/talk/0002.wav")) == 44 + 2 * 48000


def test_times_in_samples_are_those_of_the_sound(videos: Path, tmp_path: Path) -> None:
    segments = [{"start_sample": 44100, "end_sample": 88200}]
    tree = tree_of(tar_of(tmp_path, make(videos, "h264.mp4"), segments))
    assert len(names(tree, "segments/x/talk/0000/frames")) == RATE
    silent = make(videos, "silent.mp4", "-an")
    tree = tree_of(tar_of(tmp_path, silent, segments))
    with pytest.raises(FormatError, match="count samples, and the video has no sound"):
        names(tree, "segments/x/talk/0000/frames")


@pytest.mark.parametrize("name", ["h264.mp4", "mjpeg.mov"])
def test_a_damaged_video_is_an_error(videos: Path, tmp_path: Path, name: str) -> None:
    data = make(videos, name).read_bytes()
    broken = tmp_path / f"broken{Path(name).suffix}"
    broken.write_bytes(data[: len(data) // 2])
    tree = tree_of(tar_of(tmp_path, broken))
    assert tree.resolve("segments/x/talk/0000.mp4").size is None
    with pytest.raises(FormatError):
        tree.content(tree.resolve("segments/x/talk/0000.mp4").inode)
    with pytest.raises(FormatError):
        names(tree, "segments/x/talk/0000/frames")
    spoiled = tmp_path / f"spoiled{Path(name).suffix}"
    third = len(data) // 3
    spoiled.write_bytes(data[:third] + bytes(20_000) + data[third + 20_000 :])
    tree = tree_of(tar_of(tmp_path, spoiled, [{"start": 0, "end": 12}]))
    outcomes = []
    for frame in names(tree, "segments/x/talk/0000/frames"):
        entry = tree.resolve(f"segments/x/talk/0000/frames/{frame}")
        outcomes.append(entry.size is None)
        if entry.size is None:
            with pytest.raises(FormatError, match="the frame cannot be decoded"):
                tree.content(entry.inode)
        else:
            assert read(tree, f"segments/x/talk/0000/frames/{frame}")[:2] == b"\xff\xd8"
    assert 0 < sum(outcomes) < len(outcomes) / 2, "others are sound"


def test_all_kinds_of_shards_show_the_same(videos: Path, tmp_path: Path) -> None:
    video = make(videos, "h264.mp4")
    metainfo = {"key": "talk", "info": {"segments": [{"start": 0.5, "end": 1.75, "txt": "x"}]}}
    tar = write_tar(tmp_path / "x.tar", {"talk.mp4": video.read_bytes(), "talk.json": json.dumps(metainfo).encode()})
    touch = tmp_path / "touch"
    touch.mkdir()
    fields = {"video": np.dtype("u1"), "metainfo": np.dtype("u1")}
    with TouchNetWriter(touch / "x", fields) as writer:
        writer.add({"video": video.read_bytes(), "metainfo": json.dumps(metainfo).encode()})
    root = tmp_path / "root"
    root.mkdir()
    (root / "talk.mp4").write_bytes(video.read_bytes())
    lines = tmp_path / "x.jsonl"
    lines.write_text(json.dumps({**metainfo, "audio_filepath": "talk.mp4"}) + "\n")
    recording = {"id": "talk", "sources": [], "sampling_rate": 44100, "num_samples": 529200, "duration": 12.0}
    supervision = {"id": "1", "recording_id": "talk", "start": 0.5, "duration": 1.25, "channel": 0, "text": "x"}
    cut = {"id": "talk", "start": 0, "duration": 12.0, "channel": 0, "type": "MonoCut", "recording": recording}
    shar = tmp_path / "shar"
    shar.mkdir()
    (shar / "cuts.000000.jsonl").write_text(json.dumps({**cut, "supervisions": [supervision]}) + "\n")
    values = {"talk.original": video.read_bytes(), "talk.json": json.dumps(recording).encode()}
    write_tar(shar / "recording.000000.tar", values)
    trees = [
        tree_of(tar),
        tree_of(touch),
        tree_of(lines, Options(limits=Limits(audio_root=str(root)))),
        tree_of(shar),
    ]
    found = []
    for tree in trees:
        shown = {path: entry for path, entry in walk(tree, "segments") if not entry.is_directory}
        assert all(tree.resolve(path).inode == entry.inode for path, entry in shown.items())
        found.append({path.split("/", 2)[2]: read(tree, path) for path in shown if not path.endswith(".json")})
    assert len(found[0]) == 31 + 3
    assert found[1:] == found[:1] * 3


def test_samples_have_the_mp4_of_their_segments(videos: Path, tmp_path: Path) -> None:
    source = tar_of(tmp_path, make(videos, "h264.mp4"))
    segments = touchfs.open(source).segments()
    assert [sorted(segment) for segment in segments] == [["json", "mp4", "txt", "wav"]] * 2 + [["json", "mp4", "wav"]]
    tree = tree_of(source)
    for number, segment in enumerate(segments):
        assert segment["mp4"] == read(tree, f"segments/x/talk/{number:04d}.mp4")
        assert segment.path("mp4") == f"segments/x/talk/{number:04d}.mp4"
    first = segments[0]
    assert (first.duration, first.rate, first.coding) == (1.24, 44100, "wav")
    assert first.first_path() == b"segments/x/talk/0000.wav"
    assert len(first.audio()[0]) == 1.24 * 44100
    dataset = open_dataset(str(source), in_memory=True)
    assert len(SegmentSamples(dataset)) == 3
    for plan in ("max=30", "max=2", "max=0,seed=3"):
        merged = MergedSamples(dataset, parse_plan(plan))
        assert len(merged) == len({path for path, _ in walk(tree, f"merged/{plan}") if path.endswith(".wav")})
        assert "mp4" not in merged[0]
    long = touchfs.open(source).segments().where("duration > 1.3")
    assert [segment.number for segment in long] == [1]


def test_a_sample_with_sound_of_its_own_has_both(videos: Path, tmp_path: Path) -> None:
    """Times in samples are those of the recording, which is not the video's."""
    video, sound = make(videos, "h264.mp4"), make(videos, "sound.wav", "-vn", "-ar", "8000")
    members = {
        "talk.mp4": video.read_bytes(),
        "talk.wav": sound.read_bytes(),
        "talk.json": json.dumps({"segments": [{"start_sample": 8000, "end_sample": 16000}]}).encode(),
    }
    tree = tree_of(write_tar(tmp_path / "x.tar", members))
    assert len(names(tree, "segments/x/talk/0000/frames")) == RATE
    assert len(read(tree, "segments/x/talk/0000.wav")) == 44 + 2 * 8000


def test_a_key_may_be_called_as_a_segment(videos: Path, tmp_path: Path) -> None:
    video = make(videos, "h264.mp4").read_bytes()
    metainfo = json.dumps({"segments": [{"start": 0, "end": 0.2}]}).encode()
    members = {f"{key}.{end}": data for key in ("a", "a/0000") for end, data in (("mp4", video), ("json", metainfo))}
    tree = tree_of(write_tar(tmp_path / "x.tar", members))
    for key in ("a~2", "a/0000"):
        assert names(tree, f"segments/x/{key}") == ["0000.json", "0000.mp4", "0000.wav", "0000"]
        assert len(names(tree, f"segments/x/{key}/0000/frames")) == 5


def test_a_listing_continues_anywhere(videos: Path, tmp_path: Path) -> None:
    tree = tree_of(tar_of(tmp_path, make(videos, "h264.mp4")))
    for path in ("segments/x/talk", "segments/x/talk/0000", "segments/x/talk/0000/frames"):
        inode = tree.resolve(path).inode
        listed = list(tree.entries(inode))
        for number, (_, _, cookie) in enumerate(listed):
            assert list(tree.entries(inode, cookie)) == listed[number + 1 :]


def test_other_inode_numbers_are_refused(videos: Path, tmp_path: Path) -> None:
    tree = tree_of(tar_of(tmp_path, make(videos, "h264.mp4")))
    tree.resolve("segments/x/talk/0000/frames,fps=1")
    tree.resolve("slices/1-2/x/talk.wav")
    frame = tree.resolve("segments/x/talk/0000/frames/000031.jpg").inode
    rows = frame_numbers.row_and_place(frame, 12)
    others = [frame + 1, frame + 900_000, pack(frame_numbers.ALL_FIRST, 1, 0), pack(frame_numbers.ALL_END - 1, 1, 99)]
    others += [pack(frame_numbers.PLANS_FIRST, 1, number << 16 | 2) for number in (0, 2, 3, 4, 5, 99)]
    for inode in others:
        with pytest.raises(ChangedError):
            tree.content(inode)
    assert rows[1] == 32
    with pytest.raises(NotFoundError):
        tree.resolve("segments/x/talk/0003/frames")


@pytest.mark.parametrize("rows", [1, 12, 10**6, 10**8, None])
def test_inode_numbers_are_an_arithmetic_of_row_and_frame(rows: int | None) -> None:
    stride = frame_numbers.stride(rows)
    assert stride - frame_numbers.FIRST_FRAME >= 20_000
    last = 2**24 - 1 if rows is None else rows - 1
    numbers = set()
    for row in {0, 1 % (last + 1), last // 2, last}:
        run = frame_numbers.Run(7, rows, row)
        for place in (0, 1, 2, stride - 1):
            inode = run.inode(place)
            numbers.add(inode)
            assert unpack(inode)[1] == 7
            assert unpack(inode)[0] in frame_numbers.VIEWS
            assert frame_numbers.is_of_plan(inode) == (rows is None)
            assert frame_numbers.row_and_place(inode, rows) == (row, place)
    assert len(numbers) == 4 * len({0, 1 % (last + 1), last // 2, last})


def test_too_many_frames_are_an_error(videos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = tree_of(tar_of(tmp_path, make(videos, "h264.mp4")))
    monkeypatch.setattr("touchfs.tree.videos.segment_frames.stride", lambda rows: 22)
    with pytest.raises(FormatError, match="has 31 frames, and 20 are shown: choose shorter segments"):
        names(tree, "segments/x/talk/0000/frames")
    assert len(names(tree, "segments/x/talk/0002/frames")) == 20


def test_a_catalog_without_videos_shows_none(videos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As those of touchfs before: it opens, and its segments have no MP4."""
    source = tar_of(tmp_path, make(videos, "h264.mp4"))
    with monkeypatch.context() as before:
        before.setattr("touchfs.view.segments.video_in", lambda sample: None)
        tree = tree_of(source)
    assert [name for name in names(tree, "segments/x/talk") if name.startswith("0000")] == [
        "0000.json",
        "0000.txt",
        "0000.wav",
    ]
    with pytest.raises(NotFoundError):
        tree.resolve("segments/x/talk/0000")
    assert replace(tree.dataset.shards[0]).segments == 3


def test_others_may_name_only_so_many_plans(videos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("touchfs.store.shared_numbers.GUESTS_MAX", 1)
    dataset = open_dataset(str(tar_of(tmp_path, make(videos, "h264.mp4"))), in_memory=True)
    numbers = SharedNumbers()
    tree = Tree(dataset, [1], numbers=numbers)
    segment = tree.resolve("segments/x/talk/0000").inode
    found = tree.find(segment, b"frames,fps=1", is_guest=True)
    assert found is not None
    assert tree.find(segment, b"frames,fps=1", is_guest=True) == found
    with pytest.raises(FullError):
        tree.find(segment, b"frames,fps=2", is_guest=True)
    assert tree.find(segment, b"frames,fps=3") is not None
    assert tree.find(segment, b"frames", is_guest=True) is not None
    # Another worker of the mount knows it by its number.
    other = Tree(dataset, [1], numbers=numbers)
    assert other.path(found.inode) == "segments/x/talk/0000/frames,fps=1"
    assert len(list(other.entries(found.inode))) == 2
