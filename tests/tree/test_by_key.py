"""`by-key/`: every file of every sample with a key once, under a name that says which it is."""

from __future__ import annotations

import json
import os
import shutil
import tarfile
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tars import add

from touchfs import TouchDataset
from touchfs.catalog import key_builder
from touchfs.catalog.keys import Keys
from touchfs.containers.tar.samples import split_name
from touchfs.containers.touchnet.writer import TouchNetWriter
from touchfs.core import names
from touchfs.core.errors import ChangedError, NotFoundError
from touchfs.indexing import open_dataset
from touchfs.shard.options import Options
from touchfs.tree.inode import ROOT
from touchfs.tree.links import by_key, possible_keys
from touchfs.tree.tree import Tree

MODALITIES = {"metainfo": np.dtype("u1"), "tokens": np.dtype("<u2")}
LONG = "x" * 300
ODD = ["a", "a.json", "a.tokens", "a~2", "a~2.json", "a/b", "a%2Fb", "/abs/é.wav", "..", "\n", LONG, LONG + "y", 7, "7"]
ODD += ["", ".", "a.json~2", "语料", "a\ud800", LONG + ".json", "a.tokens~2"]
KEYS = st.sampled_from(ODD) | st.text("a.~2/%j", min_size=1, max_size=6)
DATASETS = st.lists(st.lists(KEYS, max_size=8), min_size=1, max_size=3)


def write(place: Path, dataset: list[list[str | int]], first: int = 0) -> None:
    for number, keys in enumerate(dataset, first):
        with TouchNetWriter(place / f"{number}", MODALITIES) as writer:
            for ordinal, key in enumerate(keys):
                writer.add({"metainfo": json.dumps({"key": key}).encode(), "tokens": bytes([number, ordinal])})


def opened(place: Path) -> Tree:
    dataset = open_dataset(os.fspath(place), in_place=True)
    return Tree(dataset, range(1, len(dataset.shards) + 1))


def listed(tree: Tree) -> dict[bytes, str]:
    """What each name leads to. Checks that all ways agree, and that a listing resumes at every place."""
    found = tree.find(ROOT, b"by-key")
    if found is None:
        return {}
    entries = list(tree.entries(found.inode))
    targets = {}
    for i, (name, entry, place) in enumerate(entries):
        assert entry.is_link and tree.find(found.inode, name) == tree.entry(entry.inode) == entry
        assert list(tree.entries(found.inode, place)) == entries[i + 1 :]
        targets[name] = os.fsdecode(tree.link(entry.inode))
        assert entry.size == len(tree.link(entry.inode))
        assert len(name) <= 255 and b"/" not in name
        name.decode()
        assert targets[name].startswith("../shards/")
        assert not tree.resolve("by-key/" + os.fsdecode(name)).is_link
    assert len(targets) == len(entries), "every name once"
    return targets


@settings(max_examples=settings().max_examples // 2)
@given(DATASETS)
@example([["a", "a.json", "a.json", "a"]])
@example([["a.json", "a"], ["a", "a~2", "a"]])
@example([[LONG, LONG + "y", LONG], [LONG]])
@example([["a.json~2", "a.json", "a.json"]])
def test_every_file_once(dataset: list[list[str | int]]) -> None:
    with tempfile.TemporaryDirectory() as place:
        write(Path(place), dataset)
        tree = opened(Path(place))
        targets = listed(tree)
        samples = {}
        for number, keys in enumerate(dataset):
            for ordinal, key in enumerate(keys):
                for name in (b"json", b"tokens.npy"):
                    samples[number, ordinal, name] = str(key)
        reached = {}
        for name, target in targets.items():
            attributes = tree.attributes(tree.resolve("by-key/" + os.fsdecode(name)).inode)
            extension = b"json" if attributes["field"] == "metainfo" else b"tokens.npy"
            assert name.endswith(extension)
            sample = int(attributes["shard"]), int(attributes["ordinal"]), extension
            assert sample not in reached
            reached[sample] = target
            if ("a" not in attributes["key"] and "~" not in attributes["key"]) and len(attributes["key"]) < 200:
                # with no other key that could want its name
                nth = sum(str(key) == attributes["key"] for keys in dataset for key in keys)
                stem = names.quote(attributes["key"])
                natural = {stem + b".json", stem + b".tokens.npy", stem}
                assert name in natural or nth > 1
        assert set(reached) == {sample for sample, key in samples.items() if key}
        with TouchDataset(place) as touch:
            flat = [(number, ordinal) for number, keys in enumerate(dataset) for ordinal in range(len(keys))]
            for key in {str(key) for keys in dataset for key in keys if key != ""}:
                of_key = [(n, o) for n, o in flat if str(dataset[n][o]) == key]
                for nth, (number, ordinal) in enumerate(of_key):
                    assert touch.get(touch.find(key, nth), "tokens").tobytes() == bytes([number, ordinal])
                with pytest.raises(NotFoundError):
                    touch.find(key, len(of_key))


def test_names_a_person_expects(tmp_path: Path) -> None:
    write(tmp_path, [["one", "a/b", "x~2", 12], ["one", "x", "x"]])
    targets = listed(opened(tmp_path))
    assert {name.decode(): target for name, target in targets.items() if name.endswith(b".json")} == {
        "one.json": "../shards/0/one.json",
        "one~2.json": "../shards/1/one.json",
        "a%2Fb.json": "../shards/0/a/b.json",
        "x~2.json": "../shards/0/x~2.json",
        "12.json": "../shards/0/12.json",
        "x.json": "../shards/1/x.json",
        "x~3.json": "../shards/1/x~2.json",
    }


def write_tar(path: Path, *names: str) -> None:
    with tarfile.open(path, "w") as tar:
        for name in names:
            add(tar, name, name.encode())


def test_paths_of_archives_are_listed_as_shown_and_found_both_ways(tmp_path: Path) -> None:
    write_tar(tmp_path / "1.tar", "./a.wav", "./a.txt", "/b/./c.wav", "../d.wav", "./..", "./.touchfs")
    write_tar(tmp_path / "2.tar", "a.wav", "./a.wav")
    (tmp_path / "3.jsonl").write_text('{"id": "./a"}\n{"id": "a"}\n')
    tree = opened(tmp_path)
    assert {name.decode(): target for name, target in listed(tree).items()} == {
        "a.wav": "../shards/1/a.wav",
        "a.txt": "../shards/1/a.txt",
        "b%2Fc.wav": "../shards/1/b/c.wav",
        "..%2Fd.wav": "../shards/1/%2E%2E/d.wav",
        "a~2.wav": "../shards/2/a.wav",
        "a~3.wav": "../shards/2/a~2.wav",
        ".%2Fa.json": "../shards/3/%2E/a.json",
        "a~4.json": "../shards/3/a.json",
    }
    raw = {
        ".%2Fa.wav": "../shards/1/a.wav",
        ".%2Fa.txt": "../shards/1/a.txt",
        ".%2Fa~2.wav": "../shards/2/a~2.wav",
        "%2Fb%2F.%2Fc.wav": "../shards/1/b/c.wav",
    }
    by_key_inode = tree.resolve("by-key").inode
    assert tree.attributes(tree.resolve("by-key/a.wav").inode)["key"] == "./a", "the attribute has the raw key"
    for name, target in raw.items():
        entry = tree.find(by_key_inode, name.encode())
        assert entry is not None, name
        assert tree.link(entry.inode).decode() == target
    for name in (".%2Fa~3.wav", "%2Fa.wav", "b%2F.%2Fc.wav", ".%2Fa.json~2"):
        assert tree.find(by_key_inode, name.encode()) is None
    found = {key: [tuple(holder) for holder in tree.dataset.find(key)] for key in ("a", "./a", "b/c", "/b/./c", "//a")}
    assert found == {
        "a": [(0, 0), (1, 0), (1, 1), (2, 1)],
        "./a": [(0, 0), (1, 1), (2, 0)],
        "b/c": [(0, 1)],
        "/b/./c": [(0, 1)],
        "//a": [],
    }


ORDINARY = ["a.wav", "./a.wav", "a.b.wav", "a.json", "a", "a.", "b/a.wav", "b//a.wav", "a~2.wav"]
HIDDEN = [".wav", "d/.wav", ".wav.wav", "d/.wav.wav", "./.touchfs", "..", "../x.wav", "%2F.wav"]
MEMBERS = st.sampled_from([*ORDINARY, *HIDDEN, "é" * 130 + ".wav", "./" + "é" * 130 + ".wav", "a." + "b." * 120])


@settings(max_examples=settings().max_examples // 2)
@given(
    st.lists(st.lists(MEMBERS, max_size=7), min_size=1, max_size=3),
    st.lists(st.sampled_from(["a", "a.wav", "a.b", "a.", ".", "b/a", "./a", "a.json", "é" * 130]), max_size=5),
    st.sampled_from(["first-dot", "last-dot"]),
)
@example([["a.b.wav"], ["a.wav"]], ["a.b"], "last-dot")
@example([["a.wav"], ["x.txt"]], ["a.wav"], "first-dot")
def test_every_member_once(tars: list[list[str]], keys: list[str], rule: str) -> None:
    """Keys and suffixes of all sorts: each file is listed under the name that leads to it, and no other has it."""
    with tempfile.TemporaryDirectory() as place:
        for number, members in enumerate(tars):
            write_tar(Path(place) / f"{number}.tar", *members)
        (Path(place) / "x.jsonl").write_text("".join(f"{json.dumps({'id': key})}\n" for key in keys))
        dataset = open_dataset(place, in_place=True, options=Options(key_rule=rule))
        targets = listed(Tree(dataset, range(1, len(dataset.shards) + 1)))
        keyed = [name for members in tars for name in members if split_name(name, rule) is not None]
        assert len(set(targets.values())) == len(targets) == len(keyed) + len(keys)


def test_few_keys_are_looked_up_to_list_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that several samples have; the others' names cannot be anyone else's."""
    asked = []
    find = Keys.find
    monkeypatch.setattr(Keys, "find", lambda keys, hash_: asked.append(hash_) or find(keys, hash_))
    write(tmp_path, [[f"x.{i}" for i in range(50)], [f"y{i}/z.{i}" for i in range(50)], ["x.7"]])
    tree = opened(tmp_path)
    entries = list(tree.entries(tree.resolve("by-key").inode))
    assert len(entries) == 202
    assert set(asked) >= {names.hash_of(b"x.7")}
    assert len(asked) < 20


def test_a_tree_that_does_not_list_them_finds_them(tmp_path: Path) -> None:
    write(tmp_path, [["one", "two"]])
    dataset = open_dataset(os.fspath(tmp_path), in_place=True)
    tree = Tree(dataset, [1], list_by_key=False)
    assert list(tree.entries(tree.resolve("by-key").inode)) == []
    assert list(tree.nonblocking.entries(tree.resolve("by-key").inode)) == []
    assert tree.resolve("by-key/one.json") == tree.resolve("shards/0/one.json")


def test_keys_of_one_hash_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (names, by_key, possible_keys, key_builder):
        monkeypatch.setattr(module, "hash_of", lambda name: 7)
    monkeypatch.setattr("touchfs.dataset.hash_of", lambda name: 7)
    write(tmp_path, [["one", "two", "a.json"], ["two", "a", "one"]])
    tree = opened(tmp_path)
    assert len(listed(tree)) == 12
    assert tree.dataset.find("two") == [(0, 1), (1, 0)]
    assert tree.dataset.find("three") == []


def test_names_stay_when_a_shard_is_added_at_the_end(tmp_path: Path) -> None:
    write(tmp_path, [["one", "two", "two", "语料"]])
    before = listed(opened(tmp_path))
    write(tmp_path, [["two", "three", "two~3"]], first=1)
    after = listed(opened(tmp_path))
    assert before.items() <= after.items()
    assert len(after) == len(before) + 6


def test_a_shard_that_is_gone(tmp_path: Path) -> None:
    write(tmp_path, [["one"], ["two"]])
    tree = opened(tmp_path)
    entry = tree.find(tree.resolve("by-key").inode, b"two.json")
    assert entry is not None
    shutil.rmtree(tmp_path / "1")
    left = opened(tmp_path)
    assert set(listed(left)) == {b"one.json", b"one.tokens.npy"}
    with pytest.raises(ChangedError):
        left.entry(entry.inode)


def test_no_keys_no_directory(tmp_path: Path) -> None:
    write(tmp_path, [["", ""]])
    tree = opened(tmp_path)
    assert tree.find(ROOT, b"by-key") is None
    assert tree.dataset.facts()["by_key"] == "absent: no sample has a key of its own"


def test_only_the_first_of_very_many_samples_with_one_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(by_key, "HOLDERS_MAX", 3)
    write(tmp_path, [["same"] * 6 + ["other"]])
    found = set(listed(opened(tmp_path)))
    assert {name for name in found if name.endswith(b".json")} == {
        b"same.json", b"same~2.json", b"same~3.json", b"other.json"
    }  # fmt: skip
