"""`tokens/`: the files of windows in a tree are those of Python, whatever way leads to them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from conformance import check_reads
from megatron import INT32, UINT8, begins, tokens, write_prefix
from touchnet import write_speech
from tree_files import names

import touchfs
from touchfs.core.errors import ChangedError, NotFoundError, UsageError
from touchfs.indexing import list_dataset, open_dataset
from touchfs.tree.inode import pack
from touchfs.tree.slice_numbers import LocalNumbers
from touchfs.tree.tree import Tree

LENGTHS = [5, 0, 120, 3, 40]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    for name, width in (("a", 1), ("b", 2)):
        starts = begins(LENGTHS)
        documents = [
            tokens(*range(width * first, width * first + each)) for first, each in zip(starts, LENGTHS, strict=True)
        ]
        write_prefix(tmp_path / name, INT32, documents)
    write_prefix(tmp_path / "empty", INT32, [])
    return tmp_path


@pytest.fixture
def tree(corpus: Path) -> Tree:
    return Tree(open_dataset(str(corpus)), [1, 2, 3])


@pytest.mark.parametrize("plan", ["7", "7,overlap=3", "7,drop_last", "1", "168", "5000,overlap=1"])
def test_files_are_those_of_python(corpus: Path, tree: Tree, plan: str) -> None:
    length, _, rest = plan.partition(",")
    overlap = int(rest.partition("=")[2] or 0)
    samples = touchfs.open(corpus).tokens(int(length), overlap, drop_last=rest == "drop_last")
    found = {}
    assert names(tree, f"tokens/{plan}") == ["a", "b", "empty"]
    for shard in ("a", "b", "empty"):
        directory = tree.resolve(f"tokens/{plan}/{shard}").inode
        listed = [*tree.entries(directory)]
        for i, (name, entry, cookie) in enumerate(listed):
            path = f"tokens/{plan}/{shard}/{name.decode()}"
            whole = tree.entry(entry.inode)
            assert tree.resolve(path) == whole and entry.size in (whole.size, None)
            content = tree.content(entry.inode)
            assert content.size == whole.size and tree.path(entry.inode) == path
            found[path] = bytes(content.read(0, content.size))
            if i % 20 == 0:
                assert [*tree.entries(directory, cookie)] == listed[i + 1 :]
                check_reads(content, found[path])
    assert found == {sample.path(name): sample[name] for sample in samples for name in sample}


def test_lengths_are_looked_up_and_not_listed(tree: Tree) -> None:
    assert names(tree, "") == ["manifests", "shards", "tokens"]
    assert names(tree, "tokens") == []
    for path in ("tokens/07", "tokens/7,overlap=0", "tokens/7/none", "tokens/7/a/0.npy", "tokens/7/a/000999.npy"):
        with pytest.raises(NotFoundError):
            tree.resolve(path)
    for path in ("tokens/7/a/000000.txt", "tokens/7/a/0000000.npy", "tokens/7/empty/000000.npy"):
        with pytest.raises(NotFoundError):
            tree.resolve(path)
    with pytest.raises(NotFoundError, match="an overlap of 9 tokens in windows of 7: it is from 0 to 6"):
        tree.resolve("tokens/7,overlap=9")
    with pytest.raises(NotFoundError, match="write 4096, 4097,overlap=1 or 4096,drop_last"):
        tree.resolve("tokens/many")
    for path in ("tokens", "tokens/7", "tokens/7/a"):
        with pytest.raises(UsageError, match="is a directory"):
            tree.content(tree.resolve(path).inode)
    with pytest.raises(UsageError, match="not a symbolic link"):
        tree.link(tree.resolve("tokens/7/a/000000.npy").inode)


def test_directories_know_where_they_are(tree: Tree) -> None:
    for path in ("tokens", "tokens/7", "tokens/7/b"):
        inode = tree.resolve(path).inode
        assert tree.path(inode) == path
        assert tree.parent(inode) == tree.resolve(path.rpartition("/")[0]).inode
    about = {path: tree.is_cacheable(tree.resolve(path).inode) for path in ("tokens", "tokens/7", "tokens/7/b")}
    assert about == {"tokens": True, "tokens/7": False, "tokens/7/b": True}
    file = tree.resolve("tokens/7,overlap=2/b/000003.json").inode
    assert tree.attributes(file) == {"shard": "b", "field": "tokens", "tokens": "7,overlap=2", "ordinal": "3"}


def test_another_process_answers_for_what_one_has_looked_up(corpus: Path) -> None:
    numbers, dataset = LocalNumbers(), open_dataset(str(corpus))
    first, second = (Tree(dataset, [1, 2, 3], numbers=numbers) for _ in range(2))
    for path in ("tokens/7", "tokens/7/a", "tokens/7/a/000020.json"):
        entry = first.resolve(path)
        assert second.entry(entry.inode) == entry and second.path(entry.inode) == path


def test_inodes_of_nothing(tree: Tree) -> None:
    tree.resolve("tokens/7/a/000003.npy")
    rows = (0, 1, 99, 1 << 8, 2 << 8 | 1, 3 << 8 | 9, 3 << 8 | 255, 4 << 8 | 255, 2**32 - 1)
    for inode in [pack(view, shard, row) for view in (5, 11, 14) for shard in (0, 1, 2, 9) for row in rows]:
        for ask in (tree.entry, tree.content, tree.parent, tree.path, lambda each: [*tree.entries(each)]):
            try:
                ask(inode)
            except (ChangedError, UsageError):
                continue


def test_it_is_there_where_it_applies(tmp_path: Path) -> None:
    for name in "ab":
        write_prefix(tmp_path / "bytes" / name, UINT8, [np.frombuffer(b"\xff\xd8\xff more", np.uint8)])
    write_speech(tmp_path / "speech", [({"key": "u", "sample_rate": 8000}, bytes(4000))])
    assert "tokens" in names(Tree(list_dataset(str(tmp_path / "bytes")), [1, 2]), "")  # nobody has looked into it
    assert "tokens" not in names(Tree(list_dataset(str(tmp_path / "speech")), [1]), "")
    for name, ids in (("bytes", [1, 2]), ("speech", [1])):
        assert "tokens" not in names(Tree(open_dataset(str(tmp_path / name)), ids), "")
