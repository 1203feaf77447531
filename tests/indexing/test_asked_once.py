"""Indexing asks once for the container of a shard, and looks at its files when it is found and when its turn comes."""

import pickle
from collections import Counter

import pytest
from tars import write_tar

from touchfs.core.location import Location
from touchfs.indexing import open_dataset
from touchfs.registry import containers, find, open
from touchfs.source import data
from touchfs.source.local_store import LocalStore


@pytest.mark.parametrize("source", ["x.tar", ".", "{x,y}.tar", "*.tar"])
def test_a_tar(tmp_path, monkeypatch, source):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / ".cache"))
    write_tar(tmp_path / "x.tar", {"a.txt": b"one", "a.json": b"{}", "b.txt": b"two"})
    named, looked, named_by, stat = [], Counter(), containers.container_named, LocalStore.stat

    def container_named(path):
        named.append(path.rpartition("/")[2])
        return named_by(path)

    def look(self, path):
        looked[path] += 1
        return stat(self, path)

    for module in (containers, find, open):
        monkeypatch.setattr(module, "container_named", container_named)
    monkeypatch.setattr(LocalStore, "stat", look)
    dataset = open_dataset(str(tmp_path / source))
    assert dataset.samples == 2
    assert named.count("x.tar") == 1
    assert looked[str(tmp_path / "x.tar")] <= 2


def test_a_place_is_parsed_where_it_enters(tmp_path, monkeypatch):
    """And by a store, each time that it is asked for the place. Others pass on what was parsed."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / ".cache"))
    tar = tmp_path / "x.tar"
    write_tar(tar, {"a.txt": b"one"})
    open_dataset(str(tar))
    parsed, asked = [], []
    of, store_of = Location.of.__func__, data.store_of
    monkeypatch.setattr(Location, "of", classmethod(lambda cls, path: parsed.append(path) or of(cls, path)))
    monkeypatch.setattr(data, "store_of", lambda path: asked.append(path) or store_of(path))
    open_dataset(str(tar))
    assert asked.count(str(tar)) == 2, "looked at, and read"
    assert parsed.count(str(tar)) == 1 + 2


def test_a_row_is_the_same_one_in_another_process():
    for container in containers.CONTAINERS:
        assert pickle.loads(pickle.dumps(container)) is container
