"""The view of interleaved samples in the tree: inode numbers, listings that continue, and damaged catalogs."""

import random
from pathlib import Path

import pytest
from interleaved_tars import make_wds_tar, random_sample
from mint_documents import make_mint_tar, shown_items, tree_of

from touchfs.core.errors import ChangedError, TouchfsError, UsageError
from touchfs.dataset import Dataset
from touchfs.indexing import open_dataset
from touchfs.tree.inode import pack, unpack
from touchfs.tree.open_shards import WouldBlockError
from touchfs.tree.tree import Tree

MUTANTS = 40
VIEW = 13


@pytest.fixture
def dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Dataset:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    make_wds_tar(tmp_path / "data" / "a.tar", [("a.txt", b"not interleaved")])
    make_mint_tar(tmp_path / "data" / "b.tar", 2)
    make_wds_tar(tmp_path / "data" / "c.tar", [random_sample(f"s{i}", i) for i in range(5)])
    return open_dataset(str(tmp_path / "data"))


def test_inode_numbers_are_those_of_the_shards(dataset):
    tree = Tree(dataset, [7, 3, 5])
    root = tree.resolve("interleaved")
    assert unpack(root.inode) == (VIEW, 0, 0)
    assert [(name, unpack(entry.inode)) for name, entry, _ in tree.entries(root.inode)] == [
        (b"b", (VIEW, 3, 0)),
        (b"c", (VIEW, 5, 0)),
    ]
    assert tree.find(root.inode, b"a") is None
    file = tree.resolve(f"interleaved/b/{1:032x}/000.txt")
    assert tree.path(file.inode) == f"interleaved/b/{1:032x}/000.txt"
    above = tree.parent(tree.parent(tree.resolve(f"interleaved/b/{1:032x}").inode))
    assert above == root.inode
    assert tree.attributes(file.inode) == {
        "shard": "b",
        "field": "text",
        "key": f"{1:032x}",
        "ordinal": "1",
        "id": f"{1:032x}",
        **{name: tree.attributes(file.inode)[name] for name in ("offset", "size")},
    }
    with pytest.raises(ChangedError):
        tree.entry(pack(VIEW, 7, 0))
    with pytest.raises(UsageError):
        tree.content(root.inode)
    with pytest.raises(UsageError):
        tree.link(file.inode)


def test_a_listing_continues_after_any_entry(dataset):
    tree = tree_of(dataset)
    for path in ("interleaved", "interleaved/b", f"interleaved/b/{0:032x}"):
        inode = tree.resolve(path).inode
        every = list(tree.entries(inode))
        for number, (_, _, cookie) in enumerate(every):
            assert list(tree.entries(inode, cookie)) == every[number + 1 :]


def test_a_thread_that_must_not_block_is_not_blocked(dataset):
    tree = tree_of(dataset)
    nonblocking = tree.nonblocking
    root = nonblocking.resolve("interleaved")
    shard = nonblocking.find(root.inode, b"b")
    with pytest.raises(WouldBlockError):
        nonblocking.find(shard.inode, b"%032x" % 0)
    text = tree.resolve(f"interleaved/b/{0:032x}/002.txt")
    assert nonblocking.entry(text.inode) == text
    content = tree.content(text.inode)
    assert content.read_nowait(0, 100) is None
    assert bytes(content.read(0, 100)) == "text 0 of 0, 中文".encode()
    assert bytes(nonblocking.content(text.inode).read_nowait(0, 100)) == "text 0 of 0, 中文".encode()


def test_damaged_catalogs_are_errors_of_ours(dataset):
    shard = dataset.interleaved.shards[1]
    path = Path(shard.catalog)
    original, dice = path.read_bytes(), random.Random(1)
    expected = set(map(type, shown_items(dataset).values()))
    assert expected == {bytes} or expected == {bytes, str}
    for _ in range(MUTANTS):
        data = bytearray(original)
        for _ in range(dice.randint(1, 4)):
            data[dice.randrange(len(data))] = dice.randrange(256)
        path.unlink()
        path.write_bytes(data)
        try:
            shown_items(dataset)
        except (TouchfsError, AssertionError):
            continue
