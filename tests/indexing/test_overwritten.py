"""Data that are overwritten in place, with the size and mtime of before, are other data. A new mode changes nothing."""

import os
from pathlib import Path

import pytest
from overwritten import KINDS, data_of, write_version

from touchfs.core.errors import ChangedError
from touchfs.indexing import open_dataset
from touchfs.source import fingerprint, local


@pytest.fixture
def samples(monkeypatch):
    """The sizes of the files of which a sample was taken."""
    taken = []

    def counted(read, size):
        taken.append(size)
        return sample_of(read, size)

    sample_of = fingerprint.sample_of
    monkeypatch.setattr(fingerprint, "sample_of", counted)
    return taken


def opened(path: Path, **how):
    """The dataset, and whether its shard was indexed now."""
    indexed = []
    dataset = open_dataset(os.fspath(path), indexed_now=indexed.append, **how)
    return dataset, bool(indexed)


def content(dataset) -> list[bytes]:
    (shard,) = dataset.shards
    (name,) = [name for name in shard.files if name.endswith((".tar", ".parquet", "audio.bin"))]
    file = shard.source(name)
    data = file.read(0, file.size)
    return [each in data for each in (*data_of(1), *data_of(2))]


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_shard_that_is_overwritten_in_place_is_another_one(tmp_path, monkeypatch, kind, force):
    monkeypatch.setattr(local, "VERIFY_SECONDS", 0)
    path = tmp_path / "data"
    write_version(kind, path, 1)
    first, indexed = opened(path)
    assert indexed
    assert content(first) == [True, True, False, False]
    write_version(kind, path, 2)
    with pytest.raises(ChangedError, match="was replaced or changed since it was indexed"):
        content(first)
    second, indexed = opened(path, force=force)
    assert indexed
    assert content(second) == [False, False, True, True]
    assert second.shards[0].identity != first.shards[0].identity
    again, indexed = opened(path)
    assert not indexed
    assert again.shards[0].identity == second.shards[0].identity
    write_version(kind, path, 3)
    third, indexed = opened(path)
    assert indexed
    assert len({dataset.shards[0].identity for dataset in (first, second, third)}) == 3


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("change", [lambda file: file.chmod(0o640), lambda file: os.link(file, f"{file}.link")])
def test_another_mode_or_link_costs_a_look_and_no_index(tmp_path, monkeypatch, samples, kind, change):
    monkeypatch.setattr(local, "VERIFY_SECONDS", 0)
    path = tmp_path / "data"
    files = write_version(kind, path, 1)
    before, _ = opened(path)
    assert content(before)[:2] == [True, True]
    for file in files:
        change(file)
        Path(f"{file}.link").unlink(missing_ok=True)
    samples.clear()
    for looks in (1, 0, 0):  # then the ctime is noted
        assert content(before)[:2] == [True, True]
        after, indexed = opened(path)
        assert not indexed
        assert after.shards[0].identity == before.shards[0].identity
        assert len(samples) <= looks * 2 * len(files) + 1
        samples.clear()
