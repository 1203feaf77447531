"""`merged/<plan>/`: what is under it is what the plan's runs say, cut from the recording with NumPy."""

from __future__ import annotations

import io
import json
import os
import tempfile
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from touchfs.containers.touchnet.writer import TouchNetWriter
from touchfs.core.errors import ChangedError, NotFoundError, UsageError
from touchfs.indexing import open_dataset
from touchfs.tree.inode import pack
from touchfs.tree.tree import Tree
from touchfs.view.plan import merge, parse_plan

RATE = 1000
MODALITIES = {"audio": np.dtype("<i2"), "metainfo": np.dtype("u1")}
PLANS = ["max=0.02", "max=0.03,gap=0", "max=0.05,gap=0.01,text=b", "max=0.04,min=0.01,seed=3,epoch=1", "max=30,gap=30"]

times = st.integers(0, 120).map(lambda ms: ms / RATE)
segments = st.fixed_dictionaries(
    {"start": times, "end": times | st.just(-1)},
    optional={"txt": st.sampled_from(["one", "二", ""]), "b": st.sampled_from(["x", "y\ud800"])},
)
samples = st.tuples(
    st.sampled_from(["a", "a/b", "c", "0000.json", "语料"]), st.integers(0, 100), st.lists(segments, max_size=6)
)


def write(place: Path, dataset: list[tuple[str, int, list[dict[str, Any]]]]) -> list[np.ndarray[Any, Any]]:
    audio = []
    with TouchNetWriter(place / "s", MODALITIES) as writer:
        for key, length, told in dataset:
            audio.append(np.random.default_rng(length).integers(-(2**15), 2**15, length, "<i2"))
            metainfo = {"key": key, "sample_rate": RATE, "info": {"segments": told}}
            writer.add({"audio": audio[-1].tobytes(), "metainfo": json.dumps(metainfo).encode()})
    return audio


def opened(place: Path) -> Tree:
    return Tree(open_dataset(os.fspath(place), in_place=True), [1])


def walk(tree: Tree, directory: int, above: str = "") -> dict[str, bytes]:
    """The files below a directory. Checks that all ways to an entry agree, and that a listing resumes anywhere."""
    files = {}
    listed = list(tree.entries(directory))
    assert len({name for name, _, _ in listed}) == len(listed)
    for i, (name, entry, place) in enumerate(listed):
        assert tree.find(directory, name) == tree.entry(entry.inode) == entry
        assert list(tree.entries(directory, place)) == listed[i + 1 :]
        path = above + name.decode()
        if entry.is_directory:
            files |= walk(tree, entry.inode, path + "/")
        else:
            content = tree.content(entry.inode)
            assert content.size == entry.size
            files[path] = bytes(content.read(0, content.size))
    return files


def pcm(data: bytes) -> bytes:
    with wave.open(io.BytesIO(data)) as file:
        assert file.getframerate() == RATE
        return file.readframes(file.getnframes())


@settings(max_examples=settings().max_examples // 2)
@given(st.lists(samples, max_size=4), st.sampled_from(PLANS))
def test_runs_are_cut_from_the_recording(dataset: list[tuple[str, int, list[dict[str, Any]]]], name: str) -> None:
    with tempfile.TemporaryDirectory() as place:
        audio = write(Path(place), dataset)
        tree = opened(Path(place))
        files = walk(tree, tree.resolve(f"merged/{name}").inode)
        segmented = walk(tree, tree.resolve("segments").inode)
        plan = parse_plan(name)
        expected = {}
        for path in [path for path in segmented if path.endswith("/0000.json")]:
            directory = path.removesuffix("0000.json")
            ordinal = int(tree.attributes(tree.resolve("segments/" + path).inode)["ordinal"])
            key, _, told = dataset[ordinal]
            made = [json.loads(segmented[f"{directory}{i:04d}.json"])["touchfs"] for i in range(len(told))]
            spans = [(each["offset"], each["length"]) for each in made]
            for number, run in enumerate(merge(plan, key, spans, RATE)):
                first = min(spans[i][0] for i in run)
                last = max(sum(spans[i]) for i in run)
                stem = f"{directory}{number:04d}"
                expected[stem + ".wav"] = audio[ordinal][first:last].tobytes()
                version = "b" if plan.text else "txt"
                texts = [told[i][version] for i in run if version in told[i]]
                if texts:
                    expected[stem + ".txt"] = texts
                expected[stem + ".json"] = run
        assert files.keys() == expected.keys()
        for path, told in expected.items():
            if path.endswith(".wav"):
                assert pcm(files[path]) == told
            elif path.endswith(".json"):
                assert [part["segment"] for part in json.loads(files[path])["parts"]] == told
            else:
                assert files[path].decode().replace(" ", "") == "".join(told).replace("\ud800", "\ufffd")
            attributes = tree.attributes(tree.resolve(f"merged/{name}/{path}").inode)
            assert attributes["plan"] == str(plan) and attributes["shard"] == "s"


SPOKEN = [("a", 100, [{"start": 0, "end": 0.02, "txt": "one"}, {"start": 0.03, "end": 0.05, "txt": "two"}])]


def test_a_plan_is_listed_once_it_is_named_and_others_are_links_to_it(tmp_path: Path) -> None:
    write(tmp_path, SPOKEN)
    tree = opened(tmp_path)
    assert list(tree.entries(tree.resolve("merged").inode)) == []
    entry = tree.resolve("merged/max=0.1")
    link = tree.find(tree.resolve("merged").inode, b"gap=1.0,max=0.10")
    assert link is not None and link.is_link and tree.link(link.inode) == b"max=0.1" and link.size == 7
    assert tree.resolve("merged/gap=1.0,max=0.10/s/a/0000.txt") == tree.resolve("merged/max=0.1/s/a/0000.txt")
    assert [(name, each) for name, each, _ in tree.entries(tree.resolve("merged").inode)] == [(b"max=0.1", entry)]
    assert tree.entry(link.inode) == link
    other = tree.resolve("merged/max=0.02")
    assert [name for name, _, _ in tree.entries(tree.resolve("merged").inode)] == [b"max=0.1", b"max=0.02"]
    assert sorted(walk(tree, other.inode)) == [f"s/a/000{i}.{e}" for i in (0, 1) for e in ("json", "txt", "wav")]
    assert sorted(walk(tree, entry.inode)) == [f"s/a/0000.{e}" for e in ("json", "txt", "wav")]


@pytest.mark.parametrize(
    "name", ["max", "max=", "max=x", "max=30,max=30", "min=1", "max=30,seed=-1", "", "é", "\udcff"]
)
def test_what_is_no_plan_is_not_there(tmp_path: Path, name: str) -> None:
    write(tmp_path, SPOKEN)
    tree = opened(tmp_path)
    assert tree.find(tree.resolve("merged").inode, os.fsencode(name)) is None
    if name:
        with pytest.raises(NotFoundError):
            tree.resolve(f"merged/{name}/s")


def test_numbers_of_nobody(tmp_path: Path) -> None:
    write(tmp_path, SPOKEN)
    tree = opened(tmp_path)
    plan = tree.resolve("merged/max=0.1").inode >> 52
    names = ["s", "s/a", "s/a/0000.wav", "s/a/0000.json", "s/a/0000.txt"]
    known = {tree.resolve(f"merged/max=0.1/{name}").inode for name in names}
    for view in (plan, plan + 1, 1023, 2047):
        for shard in (0, 1, 2):
            for row in range(12):
                inode = pack(view, shard, row)
                if inode in known or (view == plan and shard == 0 and row < 2):
                    continue
                for ask in (tree.entry, tree.attributes, lambda inode: tree.find(inode, b"s")):
                    with pytest.raises(ChangedError):
                        ask(inode)
    with pytest.raises(UsageError):
        tree.content(tree.resolve("merged/max=0.1/s").inode)
