"""Frames of videos and windows of them, in the tree of a Lance cache that pylance wrote."""

import json
import shutil
from pathlib import Path

import pytest
from conformance import check_reads
from lance_frames import VIDEOS, frames_of, write_frames
from tree_files import read

from touchfs.caches.frame_windows import WindowPlan
from touchfs.core.errors import ChangedError, FormatError, NotFoundError, UsageError
from touchfs.indexing import open_dataset
from touchfs.tree.entry import Entry
from touchfs.tree.inode import pack, unpack
from touchfs.tree.slice_numbers import LocalNumbers
from touchfs.tree.tree import Tree


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return write_frames(tmp_path / "videos", frames_of(), max_rows_per_file=7)


@pytest.fixture
def tree(cache: Path) -> Tree:
    return Tree(open_dataset(str(cache)), [1])


def listed(tree: Tree, path: str) -> dict[str, Entry]:
    return {name.decode(): entry for name, entry, _ in tree.entries(tree.resolve(path).inode)}


def test_frames_are_the_rows_of_their_videos(tree: Tree) -> None:
    assert set(listed(tree, "frames")) == {"videos"}
    assert list(listed(tree, "frames/videos")) == ["video0", "video1", "video2"]
    for number, frames in enumerate(frames_of()):
        names = list(listed(tree, f"frames/videos/video{number}"))
        assert names == [f"{i:06d}.webp" for i in range(len(frames))]
        for name, data in zip(names, frames, strict=True):
            path = f"frames/videos/video{number}/{name}"
            assert read(tree, path) == data
            inode = tree.resolve(path).inode
            assert tree.path(inode) == path and unpack(inode)[0] == 10
            check_reads(tree.content(inode), data)
            assert tree.attributes(inode).items() >= {("key", f"video{number}"), ("frame", str(int(name[:6])))}
    for name in ("000010.webp", "00001.webp", "0000001.webp", "000001.png", "99999999999.webp", "x"):
        with pytest.raises(NotFoundError):
            tree.resolve(f"frames/videos/video0/{name}")


def test_a_video_is_a_sample(tree: Tree) -> None:
    assert list(listed(tree, "shards/videos")) == ["video0.json", "video1.json", "video2.json"]
    record = json.loads(read(tree, "shards/videos/video1.json"))
    assert record == {
        "id": 2,
        "key": "video1",
        "path": "/data/1.mp4",
        "checksum": None,
        "T": 5,
        "H": 4,
        "W": 6,
        "start_row": 10,
        "metadata": {"label": 1},
    }
    assert tree.resolve("by-key/video2.json") == tree.resolve("shards/videos/video2.json")


@pytest.mark.parametrize("name", ["L3-s0-h2", "L3-s1-h1", "L3-s1-h3", "L2-s0-h1-m6", "L1-s0-h1"])
def test_windows_have_the_frames_of_their_plan(tree: Tree, name: str) -> None:
    plan, frames = WindowPlan.parse(name), frames_of()
    assert plan is not None
    expected = [
        (video, start)
        for video, count in enumerate(VIDEOS)
        for start in range(0, plan.count(count) * plan.hop, plan.hop)
    ]
    assert list(listed(tree, f"windows/{name}/videos")) == [f"{i:06d}" for i in range(len(expected))]
    for number, (video, start) in enumerate(expected):
        above = f"windows/{name}/videos/{number:06d}"
        numbers = list(plan.frames(start))
        entries = listed(tree, above)
        assert list(entries) == [*(f"{i:03d}.webp" for i in range(plan.length)), "info.json"]
        for i, frame in enumerate(numbers):
            path = f"{above}/{i:03d}.webp"
            assert read(tree, path) == frames[video][frame]
            assert tree.resolve(path) == tree.resolve(f"frames/videos/video{video}/{frame:06d}.webp")
            assert entries[f"{i:03d}.webp"].inode == tree.resolve(path).inode
        info = json.loads(read(tree, f"{above}/info.json"))
        assert info == {
            "key": f"video{video}",
            "video_idx": video,
            "filename": f"/data/{video}.mp4",
            "start_frame": start,
            "frame_indices": numbers,
        }


def test_any_plan_has_windows_and_two_are_listed(tree: Tree) -> None:
    assert list(listed(tree, "windows")) == ["L16-s0-h4", "L8-s0-h8"]
    assert list(listed(tree, "windows/L8-s0-h8/videos")) == ["000000"]
    assert not listed(tree, "windows/L999-s0-h1/videos")
    for path in ("L0-s0-h1", "L016-s0-h4", "L3-s0-h1/videos/7", "L3-s0-h1/videos/000012", "L3-s0-h1/none"):
        with pytest.raises(NotFoundError):
            tree.resolve(f"windows/{path}")
    with pytest.raises(NotFoundError, match="'L8-s0' is not written as L16-s0-h4"):
        tree.resolve("windows/L8-s0")
    for path in ("windows", "windows/L3-s0-h1/videos/000001", "frames/videos/video0"):
        with pytest.raises(UsageError, match="is a directory"):
            tree.content(tree.resolve(path).inode)


def test_new_shards_are_seen_below_any_plan(tree: Tree) -> None:
    cacheable = {"windows": True, "windows/L3-s0-h1": False, "windows/L3-s0-h1/videos": True, "frames": True}
    assert {path: tree.is_cacheable(tree.resolve(path).inode) for path in cacheable} == cacheable


def test_directories_know_where_they_are(tree: Tree) -> None:
    for path in ("windows/L3-s0-h1/videos/000001", "frames/videos/video1"):
        parts = path.split("/")
        for depth in range(len(parts), 0, -1):
            inode = tree.resolve("/".join(parts[:depth])).inode
            assert tree.path(inode) == "/".join(parts[:depth])
            assert tree.parent(inode) == tree.resolve("/".join(parts[: depth - 1])).inode
    assert tree.path(tree.resolve("windows/L3-s0-h1/videos/000001/info.json").inode).endswith("000001/info.json")


def test_another_process_answers_for_what_one_has_looked_up(cache: Path) -> None:
    numbers, dataset = LocalNumbers(), open_dataset(str(cache))
    first, second = (Tree(dataset, [1], numbers=numbers) for _ in range(2))
    for path in ("windows/L3-s0-h1", "windows/L3-s0-h1/videos/000003", "windows/L3-s0-h1/videos/000003/info.json"):
        entry = first.resolve(path)
        assert second.entry(entry.inode) == entry and second.path(entry.inode) == path


def test_inodes_of_nothing(tree: Tree) -> None:
    tree.resolve("windows/L3-s0-h1/videos/000003")
    rows = (0, 1, 99, 1 << 8, 2 << 8 | 1, 3 << 8 | 200, 2**32 - 1)
    for inode in [pack(view, shard, row) for view in (5, 10, 11) for shard in (0, 1, 2) for row in rows]:
        for ask in (tree.entry, tree.content, tree.parent, tree.path, lambda each: list(tree.entries(each))):
            try:
                ask(inode)
            except (ChangedError, UsageError):
                continue


def test_names_of_videos(tmp_path: Path) -> None:
    keys = ["a/b", "a", "a.json", "a", 7, None, ""]
    frames = [[b"%d" % i] for i in range(len(keys))]
    tree = Tree(open_dataset(str(write_frames(tmp_path / "v", frames, keys))), [1])
    found = {}

    def walk(path: str) -> None:
        for name, entry in listed(tree, path).items():
            below = f"{path}/{name}"
            assert tree.resolve(below).inode == entry.inode
            if entry.is_directory:
                walk(below)
            else:
                found[below.removeprefix("frames/v/")] = read(tree, below)

    walk("frames/v")
    assert sorted(found.values()) == sorted(data for video in frames for data in video)
    assert found["a/b/000000.webp"] == b"0" and found["a.json/000000.webp"] == b"1" and found["7/000000.webp"] == b"4"


def test_frames_that_are_not_there_are_a_problem_of_their_video(cache: Path, tmp_path: Path) -> None:
    metadata = json.loads((cache / "_metadata.json").read_text())
    metadata["num_rows"] = 99
    metadata["videos"][2]["T"] = 40
    (cache / "_metadata.json").write_text(json.dumps(metadata))
    tree = Tree(open_dataset(str(cache)), [1])
    assert b"37 of its frames are missing" in read(tree, "shards/videos/ERROR.txt")
    assert not listed(tree, "frames/videos/video2") and len(listed(tree, "frames/videos/video1")) == 5


@pytest.mark.parametrize(
    "damage", ["{", "[]", '{"layout": "lance-video-frames"}', '{"layout": "x", "format": "lance"}']
)
def test_damaged_metadata_is_shown(cache: Path, damage: str) -> None:
    (cache / "_metadata.json").write_text(damage)
    tree = Tree(open_dataset(str(cache)), [1])
    assert list(listed(tree, "shards/videos")) == ["ERROR.txt"]
    assert b"_metadata.json" in read(tree, "shards/videos/ERROR.txt") or b"cache" in read(
        tree, "shards/videos/ERROR.txt"
    )
    with pytest.raises(NotFoundError):
        tree.resolve("frames")


def test_a_cache_that_is_gone_is_an_error_of_the_read(cache: Path, tree: Tree) -> None:
    entry = tree.resolve("frames/videos/video0")
    shutil.rmtree(cache / "_versions")
    with pytest.raises((ChangedError, FormatError)):
        tree.content(unpacked(tree, entry))


def unpacked(tree: Tree, video: Entry) -> int:
    return next(entry.inode for _, entry, _ in tree.entries(video.inode))
