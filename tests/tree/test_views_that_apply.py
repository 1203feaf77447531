"""Views that do not apply to a dataset are not shown, once that is known."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest
import soundfile
from tars import write_tar

from touchfs.indexing import list_dataset, open_dataset
from touchfs.tree.inode import ROOT
from touchfs.tree.tree import Tree


def wav() -> bytes:
    file = io.BytesIO()
    soundfile.write(file, np.zeros(800, "i2"), 8000, format="WAV")
    return file.getvalue()


@pytest.fixture
def pictures(tmp_path: Path) -> str:
    for name in ("x", "y"):
        write_tar(tmp_path / f"pictures/{name}.tar", {f"{name}.jpg": b"\xff\xd8\xff", f"{name}.json": b'{"label": 3}'})
    return str(tmp_path / "pictures")


def names(tree: Tree, path: str = "") -> list[str]:
    directory = tree.resolve(path).inode
    return [name.decode() for name, _, _ in tree.entries(directory)]


def test_pictures_have_no_views_of_recordings(pictures: str) -> None:
    tree = Tree(open_dataset(pictures), [1, 2])
    assert names(tree) == ["by-key", "manifests", "shards"]
    assert names(tree, "manifests") == ["extents.parquet", "filelist.txt"]
    listed = tree.content(tree.resolve("manifests/filelist.txt").inode)
    files = [f"shards/{name}/{name}.{end}" for name in "xy" for end in ("jpg", "json")]
    assert bytes(listed.read(0, listed.size)).decode().splitlines() == files


def test_recordings_have_all_views_of_them(tmp_path: Path) -> None:
    tree = Tree(open_dataset(str(write_tar(tmp_path / "x.tar", {"a.wav": wav()}))), [1])
    assert names(tree) == ["by-key", "manifests", "merged", "segments", "shards", "slices"]
    assert names(tree, "manifests/hf") == ["metadata.csv", "segments", "shards", "slices"]


def test_a_dataset_without_samples_may_have_all(tmp_path: Path) -> None:
    tree = Tree(open_dataset(str(write_tar(tmp_path / "x.tar", {}))), [1])
    assert {"manifests", "merged", "segments", "shards"} <= {*names(tree)}
    assert "left_out.txt" in names(tree, "manifests")


def test_views_are_listed_while_it_is_not_known_whether_they_apply(pictures: str) -> None:
    tree = Tree(list_dataset(pictures), [1, 2])
    before = {name: entry for name, entry, _ in tree.entries(ROOT)}
    assert {b"segments", b"merged", b"slices"} <= before.keys()
    tree.await_all()
    assert names(tree) == ["by-key", "manifests", "shards"]
    assert tree.find(ROOT, b"segments") is None
    for view, below in ((b"segments", [b"x", b"y"]), (b"merged", [])):  # a program may have it open, or be in it
        assert tree.entry(before[view].inode) == before[view]
        assert [name for name, _, _ in tree.entries(before[view].inode)] == below
    fresh = Tree(open_dataset(pictures), [1, 2])
    assert all(before[name].inode == entry.inode for name, entry, _ in fresh.entries(ROOT))


def test_a_recording_in_any_shard_is_enough(tmp_path: Path) -> None:
    write_tar(tmp_path / "d/x.tar", {"x.txt": b"x"})
    segments = json.dumps({"segments": [{"start": 0, "end": 0.05, "text": "a"}]}).encode()
    write_tar(tmp_path / "d/y.tar", {"a.wav": wav(), "a.json": segments})
    tree = Tree(open_dataset(str(tmp_path / "d")), [1, 2])
    assert names(tree) == ["by-key", "manifests", "merged", "segments", "shards", "slices"]
    assert names(tree, "segments") == ["x", "y"]
