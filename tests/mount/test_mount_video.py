"""Segments of videos through the kernel: as files of every tool, rendered once, and without harm from damaged ones."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tars import write_tar

sys.path.append(os.path.join(os.path.dirname(__file__), "../media"))
from videos import hashes, make

pytestmark = pytest.mark.usefixtures("has_libraries")

SEGMENTS = [{"start": 0.52, "end": 1.76, "text": "one"}, {"start": 2, "end": 3.52}, {"start": 11.2}]


@pytest.fixture(scope="module")
def videos(tmp_path_factory):
    return tmp_path_factory.mktemp("videos")


def tar_of(tmp_path, videos: list[Path], **more: bytes) -> Path:
    metainfo = json.dumps({"segments": SEGMENTS}).encode()
    members = {name: data for video in videos for name, data in ((video.name, video.read_bytes()),)}
    members |= {f"{video.stem}.json": metainfo for video in videos}
    return write_tar(tmp_path / "x.tar", members)


def rendered(scratch: Path) -> int:
    """How many results of decoding and probing are kept."""
    return len(list(scratch.glob("*.value")))


@pytest.mark.parametrize(
    "names",
    [
        ("h264.mp4", "vp9.webm"),
        pytest.param(("hevc.mkv", "mjpeg.mov", "mpeg4.avi"), marks=pytest.mark.variant),
    ],
    ids=" ".join,
)
def test_the_files_are_those_of_ffmpeg(mount, tmp_path, videos, scratch, names):
    sources = [make(videos, name) for name in names]
    mounted = mount(tar_of(tmp_path, sources))
    for source in sources:
        directory = mounted.path / "segments" / "x" / source.stem
        for number, segment in enumerate(SEGMENTS):
            seek = ("-ss", str(segment["start"]), "-to", str(segment.get("end", 24)), "-i", str(source))
            wanted = hashes(*seek, "-vsync", "passthrough")
            assert hashes("-i", str(directory / f"{number:04d}.mp4")) == wanted
            frames = sorted((directory / f"{number:04d}" / "frames").iterdir())
            assert [frame.name for frame in frames] == [f"{i:06d}.jpg" for i in range(1, len(wanted) + 1)]
        probe = ["ffprobe", "-v", "error", "-show_entries", "format=duration", "-of", "csv=p=0", directory / "0001.mp4"]
        assert float(subprocess.run(probe, check=True, capture_output=True).stdout) == pytest.approx(1.52, abs=0.05)
        sizes = ["ffprobe", "-v", "error", "-show_entries", "stream=width,height", "-of", "csv=p=0", frames[0]]
        assert subprocess.run(sizes, check=True, capture_output=True).stdout.split() == [b"160,120"]


def test_tools_copy_what_they_list(mount, tmp_path, videos, scratch):
    mounted = mount(tar_of(tmp_path, [make(videos, "h264.mp4"), make(videos, "vp9.webm")]), "--workers", 2)
    segments = mounted.path / "segments"
    found = subprocess.run(["find", segments, "-name", "*.jpg"], check=True, capture_output=True).stdout.splitlines()
    assert len(found) == 2 * (31 + 38 + 20)
    assert rendered(scratch) == 2, "a listing knows the two videos, and renders nothing"
    listed = subprocess.run(["ls", "-l", segments / "x/h264"], check=True, capture_output=True, text=True).stdout
    sizes = {line.split()[-1]: int(line.split()[4]) for line in listed.splitlines()[1:]}
    assert rendered(scratch) == 3, "the sound is measured, and nothing is rendered"
    assert sizes["0000.mp4"] > 1000
    for tool in (["cp", "-r"], ["rsync", "-a"]):
        target = tmp_path / tool[0]
        subprocess.run([*tool, f"{segments}/x", target], check=True)
        [copy] = [path for path in target.glob("**/h264") if path.is_dir()]
        assert (copy / "0000.mp4").stat().st_size == sizes["0000.mp4"]
        files = [path for path in copy.rglob("*") if path.is_file()]
        assert len(files) == 3 * 3 + 1 + 31 + 38 + 20
        for path in files:
            assert path.read_bytes() == (segments / "x/h264" / path.relative_to(copy)).read_bytes()
    few = sorted((segments / "x/h264/0001/frames,fps=2").iterdir())
    assert len(few) == 4
    assert few[0].read_bytes() == (segments / "x/h264/0001/frames/000001.jpg").read_bytes()
    assert os.readlink(segments / "x/h264/0001/frames,fps=2.0") == "frames,fps=2"
    assert sorted(os.listdir(segments / "x/h264/0001")) == ["frames"]
    assert os.getxattr(few[1], "user.touchfs.time") == b"2.48"


def test_readers_of_one_frame_render_once(mount, tmp_path, videos, scratch):
    mounted = mount(tar_of(tmp_path, [make(videos, "h264.mp4")]), "--workers", 2)
    directory = mounted.path / "segments/x/h264"
    assert len(os.listdir(directory / "0002/frames")) == 20
    assert rendered(scratch) == 1
    frame = directory / "0002/frames/000003.jpg"
    readers = [subprocess.Popen(["cat", frame], stdout=subprocess.PIPE) for _ in range(8)]
    [data] = {reader.communicate()[0] for reader in readers}
    assert data[:2] == b"\xff\xd8"
    assert rendered(scratch) == 2
    assert frame.stat().st_size == len(data)
    others = [(directory / f"0002/frames/{number:06d}.jpg").stat().st_size for number in range(1, 21)]
    assert min(others) > 100
    assert rendered(scratch) == 2, "a frame is rendered with its neighbours"
    readers = [subprocess.Popen(["cat", directory / "0001.mp4"], stdout=subprocess.PIPE) for _ in range(8)]
    assert len({reader.communicate()[0] for reader in readers}) == 1
    assert rendered(scratch) == 2, "a copy is not rendered"


def test_a_damaged_video_is_an_error_of_its_readers(mount, tmp_path, videos, scratch):
    whole = make(videos, "h264.mp4")
    cut = tmp_path / "cut.mp4"
    cut.write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])
    noise = tmp_path / "noise.mkv"
    noise.write_bytes(b"\x1a\x45\xdf\xa3" + os.urandom(50_000))
    mounted = mount(tar_of(tmp_path, [cut, noise, whole]))
    shard = mounted.path / "segments/x"
    for key in ("cut", "noise"):
        assert (shard / key / "0000.mp4").stat().st_size == 1
        with pytest.raises(OSError, match="Input/output"):
            (shard / key / "0000.mp4").read_bytes()
        with pytest.raises(OSError, match="Input/output"):
            os.listdir(shard / key / "0000/frames")
        assert (shard / key / "0000.json").read_bytes()
    errors = (mounted.path / ".touchfs/errors").read_text()
    assert "segments/x/cut/0000.mp4" in errors
    assert "segments/x/noise/0000/frames" in errors
    assert (shard / "h264/0000/frames/000001.jpg").read_bytes()[:2] == b"\xff\xd8"


def test_iterators_have_segments_of_videos(mount, tmp_path, videos, scratch):
    mounted = mount(tar_of(tmp_path, [make(videos, "h264.mp4")]))
    iterator = mounted.path / ".touchfs" / "iterators" / "train"
    iterator.mkdir()
    (iterator / "spec").write_text(json.dumps({"select": "segments", "output": "relpath", "batch": 3}))
    assert (iterator / "next").read_text() == "".join(f"segments/x/h264/{i:04d}.wav\n" for i in range(3))
    for select in ("merged/max=30", "segments/x/h264"):
        (iterator / "spec").write_text(json.dumps({"select": select, "where": "duration > 1.3", "batch": 3}))
        assert (iterator / "next").read_text()
