"""A video without sound has segments of its pictures, and no WAV files."""

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path

import av
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tars import write_tar
from tree_files import names

sys.path.append(os.path.join(os.path.dirname(__file__), "../media"))
from videos import make

from touchfs.core.extent import Memory, drive
from touchfs.indexing import open_dataset
from touchfs.media.coding.mp4_sound import is_silent
from touchfs.tree.tree import Tree

SEGMENTS = json.dumps({"segments": [{"start": 0.5, "end": 1, "text": "one"}]}).encode()
H264 = ("-c:v", "libx264", "-g", "25", "-threads", "1")


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("videos")


def tree_of(place: Path, members: dict[str, bytes], *, full: bool) -> Tree:
    dataset = open_dataset(str(write_tar(place / "x.tar", members)), in_memory=not full, force=full, full=full)
    assert dataset.shards[0].report == ""
    return Tree(dataset, range(1, 2))


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("options", [("silent.mp4",), ("first.mp4", "-movflags", "+faststart"), ("silent.mov",)])
def test_segments_have_no_wav(videos, tmp_path, options, full):
    name, *rest = options
    video = make(videos, name, *H264, "-an", *rest, seconds=2)
    tree = tree_of(tmp_path, {f"talk{video.suffix}": video.read_bytes(), "talk.json": SEGMENTS}, full=full)
    assert names(tree, "segments/x/talk") == ["0000.json", "0000.mp4", "0000.txt", "0000"]
    entry = tree.resolve("segments/x/talk/0000.json")
    content = tree.content(entry.inode)
    assert json.loads(bytes(content.read(0, content.size)))["touchfs"]["problem"] == "it has no sound"
    movie = tree.content(tree.resolve("segments/x/talk/0000.mp4").inode)
    with av.open(io.BytesIO(bytes(movie.read(0, movie.size)))) as opened:
        assert [stream.type for stream in opened.streams] == ["video"]


@pytest.mark.parametrize("name", ["sound.mp4", "fragmented.mp4", "sound.mov"])
def test_a_video_with_sound_has_wavs(videos, tmp_path, name):
    options = ("-movflags", "+frag_keyframe+empty_moov") if name == "fragmented.mp4" else ()
    video = make(videos, name, *H264, "-c:a", "aac", *options, seconds=2)
    tree = tree_of(tmp_path, {f"talk{video.suffix}": video.read_bytes(), "talk.json": SEGMENTS}, full=False)
    assert "0000.wav" in names(tree, "segments/x/talk")


def test_another_video_of_the_sample_has_the_sound(videos, tmp_path):
    silent = make(videos, "silent.mp4", *H264, "-an", seconds=2).read_bytes()
    sound = make(videos, "sound.mp4", *H264, "-c:a", "aac", seconds=2).read_bytes()
    tree = tree_of(tmp_path, {"talk.mp4": silent, "talk.right.mp4": sound, "talk.json": SEGMENTS}, full=False)
    wav = tree.content(tree.resolve("segments/x/talk/0000.wav").inode)
    assert wav.size == 44 + 2 * 22050


@given(st.data())
def test_damaged_headers_are_not_silent_and_no_error(videos, data):
    movie = bytearray(make(videos, "silent.mp4", *H264, "-an", seconds=2).read_bytes())
    start = movie.index(b"moov") - 4
    for _ in range(data.draw(st.integers(1, 4))):
        movie[data.draw(st.integers(start, len(movie) - 1))] = data.draw(st.integers(0, 255))
    cut = movie[: data.draw(st.integers(0, len(movie)))]
    assert drive(is_silent(len(movie)), Memory(movie)) in (True, False)
    assert drive(is_silent(len(cut)), Memory(cut)) is False or len(cut) > start
