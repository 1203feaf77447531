"""Compressed shards: the samples, files and changes of the shard that is in them, and their life in a dataset."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import shutil
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest
import zstandard
from conformance import Expected, check_shard
from shown import dataset_files
from tars import tar_of

from touchfs.core.errors import FormatError, SourceError
from touchfs.core.location import Location
from touchfs.dataset import Dataset
from touchfs.indexing import open_dataset, preparing
from touchfs.indexing.preparing import is_waiting, release
from touchfs.registry.find import find_shards
from touchfs.registry.open import open_shard, shard_at, shard_name
from touchfs.shard.options import LAST_DOT, Decompress, Options
from touchfs.source.decompressed import GZIP_LINES_SUFFIXES, OTHER_LINES_SUFFIXES, TAR_SUFFIXES
from touchfs.source.scratch.store import DIRECTORY_VARIABLE, SIZE_VARIABLE

JSONL_SUFFIXES = GZIP_LINES_SUFFIXES + OTHER_LINES_SUFFIXES

LATER, NEVER = Options(decompress=Decompress.LATER), Options(decompress=Decompress.NEVER)
COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".tgz": gzip.compress,
    ".xz": lzma.compress,
    ".bz2": bz2.compress,
    ".zst": zstandard.compress,
}
LINES = b'{"id": "a"}\n{"id": "b", "n": 1}\n'


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(tmp_path / "scratch"))
    return tmp_path / "scratch"


def write(path: Path, data: bytes) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(COMPRESS[path.suffix.replace(".tb", ".b").replace(".t", ".")](data))
    return path


def stored(scratch: Path) -> list[str]:
    return sorted(name for name in os.listdir(scratch) if name.endswith(".scratch"))


def evict(scratch: Path) -> None:
    for name in stored(scratch):
        (scratch / name).unlink()


@pytest.mark.parametrize("suffix", TAR_SUFFIXES)
def test_tars(tmp_path: Path, suffix: str) -> None:
    members = {"a/x.wav": b"one" * 1000, "a/x.json": b"{}", "y.seg.png": b"p"}
    path = write(tmp_path / f"data.v1{suffix}", tar_of(members))
    check_shard(
        lambda: open_shard(str(path)),
        [Expected("a/x", {"wav": b"one" * 1000, "json": b"{}"}), Expected("y", {"seg.png": b"p"})],
    )
    assert [sample.key for sample in open_shard(str(path), Options(key_rule=LAST_DOT))] == ["a/x", "y.seg"]
    assert shard_name(Location.of(path), shard_at(str(path)).container) == "data.v1"
    dataset = open_dataset(str(path))
    assert dataset_files(dataset) == {f"data.v1/{name}": data for name, data in members.items()}
    assert dataset.facts()["kind"] == "compressed tar"
    assert dataset.size == len(tar_of(members))


@pytest.mark.parametrize("suffix", JSONL_SUFFIXES)
def test_jsonl(tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path / f"data{suffix}", LINES)
    first, second = LINES.splitlines(keepends=True)
    check_shard(lambda: open_shard(str(path)), [Expected("a", {"json": first}), Expected("b", {"json": second})])
    assert dataset_files(open_dataset(str(path))) == {"data/a.json": first, "data/b.json": second}


def test_found_beside_others(tmp_path: Path) -> None:
    for suffix in (*TAR_SUFFIXES, *JSONL_SUFFIXES):
        write(tmp_path / f"data/{suffix.replace('.', '_')}{suffix}", b"")
    (tmp_path / "data/notes.txt.gz").write_bytes(b"")
    (tmp_path / "data/.hidden.tar.gz").write_bytes(b"")
    (tmp_path / "data/plain.jsonl").write_bytes(LINES)
    found = find_shards(str(tmp_path / "data"))
    assert len(found) == len(TAR_SUFFIXES) + len(JSONL_SUFFIXES) + 1
    assert found == sorted(found)


# What is wrong with one


@pytest.mark.parametrize("spoil", [lambda data: data[:-9], lambda data: b"no gzip" + data, lambda data: b""])
def test_a_damaged_one_is_told_and_not_tried_again(
    tmp_path: Path, scratch: Path, spoil: Callable[[bytes], bytes]
) -> None:
    bad, good = tmp_path / "data/bad.tar.gz", write(tmp_path / "data/good.jsonl.gz", LINES)
    bad.write_bytes(spoil(gzip.compress(tar_of({"x.txt": b"x" * 5000}))))
    with pytest.raises(FormatError) as caught:
        open_shard(str(bad))
    assert caught.value.path == str(bad)
    dataset = open_dataset(str(good.parent))
    report = dataset_files(dataset)["bad/ERROR.txt"].decode()
    assert str(caught.value) in report
    assert report == dataset.shards[0].report
    assert dataset.shards[1].samples == 2
    told: list[int] = []
    for options in (Options(), LATER, NEVER):
        again = open_dataset(str(good.parent), options=options, preparing=lambda done, total: told.append(done))
        assert [shard.report for shard in again.shards] == [report, ""]
    assert told == []
    assert len(stored(scratch)) == 1


def test_damage_in_the_tar_is_told_under_its_own_name(tmp_path: Path, scratch: Path) -> None:
    plain = tar_of({"a.txt": b"a", "b.txt": b"b"})
    path = write(tmp_path / "x.tar.gz", plain[:1024] + b"?" * 512 + plain[1536:])
    report = open_dataset(str(path)).shards[0].report
    assert f"{path} (decompressed): " in report
    assert "at byte 1024" in report
    assert str(scratch) not in report


def test_one_without_room_is_tried_again(tmp_path: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "data/big.jsonl.gz", LINES * 1000)
    write(tmp_path / "data/small.jsonl.gz", LINES)
    monkeypatch.setenv(SIZE_VARIABLE, "1k")
    dataset = open_dataset(str(tmp_path / "data"))
    assert f"big.jsonl.gz: takes {len(LINES) * 1000:,} bytes or more" in dataset.shards[0].report
    assert dataset.shards[1].samples == 2
    assert len(stored(scratch)) == 1
    later = open_dataset(str(tmp_path / "data"), options=LATER)
    assert later.shards == dataset.shards, "what is known of it is shown"
    assert [is_waiting(shard) for shard in later.shards] == [True, False]
    monkeypatch.setenv(SIZE_VARIABLE, "100k")
    assert [shard.samples for shard in open_dataset(str(tmp_path / "data")).shards] == [2000, 2]


def test_an_extra_that_is_missing_is_not_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "x.jsonl.zst", LINES)
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "zstandard", None)
        assert "pip install 'touchfs-shards[zstd]'" in open_dataset(str(path)).shards[0].report
    assert open_dataset(str(path)).samples == 2


# Its life in a dataset


@pytest.fixture
def source(tmp_path: Path) -> Path:
    write(tmp_path / "data/a.tar.gz", tar_of({"x.txt": b"x"}))
    write(tmp_path / "data/b.jsonl.zst", LINES)
    (tmp_path / "data/c.jsonl").write_bytes(LINES)
    return tmp_path / "data"


FILES = {"a/x.txt", "b/a.json", "b/b.json", "c/a.json", "c/b.json"}


def test_decompressed_once(source: Path, scratch: Path) -> None:
    told: list[tuple[int, int]] = []
    dataset = open_dataset(str(source), preparing=lambda done, total: told.append((done, total)))
    assert dataset_files(dataset).keys() == FILES
    total = (source / "a.tar.gz").stat().st_size + (source / "b.jsonl.zst").stat().st_size
    assert told[-1] == (total, total)
    made = stored(scratch)
    told.clear()
    assert open_dataset(str(source), preparing=lambda done, total: told.append((done, total))).shards == dataset.shards
    assert (told, stored(scratch)) == ([], made)


def test_in_processes(source: Path) -> None:
    told: list[tuple[int, int]] = []
    with ProcessPoolExecutor(2, get_context("forkserver")) as pool:
        dataset = open_dataset(str(source), executor=pool, preparing=lambda done, total: told.append((done, total)))
    assert dataset_files(dataset).keys() == FILES
    assert [done for done, _ in told][-1] == told[0][1]


def test_evicted_and_made_again(source: Path, scratch: Path) -> None:
    dataset = open_dataset(str(source))
    catalogs = {shard.catalog: os.stat(shard.catalog).st_ino for shard in dataset.shards}
    evict(scratch)
    with pytest.raises(SourceError, match="was evicted from the scratch store: `touchfs reload`"):
        dataset_files(dataset)
    again = open_dataset(str(source))
    assert dataset_files(again).keys() == FILES
    assert again.shards == dataset.shards
    assert {shard.catalog: os.stat(shard.catalog).st_ino for shard in again.shards} == catalogs, "not indexed again"


def test_one_that_changes(source: Path, scratch: Path) -> None:
    old = open_dataset(str(source))
    write(source / "b.jsonl.zst", b'{"id": "new"}\n')
    os.utime(source / "b.jsonl.zst", ns=(0, 0))
    new = open_dataset(str(source))
    assert dataset_files(new)["b/new.json"] == b'{"id": "new"}\n'
    same = [one.identity == other.identity for one, other in zip(old.shards, new.shards, strict=True)]
    assert same == [True, False, True]


def test_what_a_dataset_needs_is_not_evicted_while_it_lives(
    source: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = open_dataset(str(source))
    monkeypatch.setenv(SIZE_VARIABLE, "11k")
    other = write(source.parent / "other.jsonl.gz", LINES * 100)
    assert "is 11,000, of which" in open_dataset(str(other)).shards[0].report
    assert dataset_files(dataset).keys() == FILES
    release(dataset)
    assert open_dataset(str(other)).samples == 200


def test_what_is_too_much_together_is_served_as_far_as_it_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And not over and over made again."""
    for number in range(4):
        write(tmp_path / f"data/{number}.jsonl.gz", LINES * 100)
    monkeypatch.setenv(SIZE_VARIABLE, str(2 * len(LINES * 100)))
    dataset = open_dataset(str(tmp_path / "data"))
    assert [shard.samples for shard in dataset.shards] == [200, 200, 0, 0]
    assert all("--scratch-size raises it" in shard.report for shard in dataset.shards[2:])
    assert [shard.samples for shard in open_dataset(str(tmp_path / "data")).shards] == [200, 200, 0, 0]


def shown(dataset: Dataset) -> set[str]:
    return set(dataset_files(dataset))


def test_later(source: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparing, "AT_ONCE_MAX", 0)
    dataset = open_dataset(str(source), options=LATER)
    files = dataset_files(dataset)
    assert files.keys() == {"a/PREPARING.txt", "b/PREPARING.txt", "c/a.json", "c/b.json"}
    assert str(source / "a.tar.gz").encode() in files["a/PREPARING.txt"]
    assert [is_waiting(shard) for shard in dataset.shards] == [True, True, False]
    assert [shard.report for shard in dataset.shards] == ["", "", ""]
    assert shown(open_dataset(str(source), options=LATER)) == files.keys(), "which is no state to stay in"
    done = open_dataset(str(source))
    assert shown(done) == shown(open_dataset(str(source), options=LATER)) == FILES
    assert not any(one.identity == other.identity for one, other in zip(dataset.shards[:2], done.shards, strict=False))
    evict(scratch)
    assert "a/PREPARING.txt" in shown(open_dataset(str(source), options=LATER))


def test_never(source: Path, scratch: Path) -> None:
    dataset = open_dataset(str(source), options=NEVER)
    assert shown(dataset) == {"a/ERROR.txt", "b/ERROR.txt", "c/a.json", "c/b.json"}
    assert "without --no-decompress" in dataset.shards[0].report
    assert not scratch.exists()
    assert not any(map(is_waiting, dataset.shards))
    with pytest.raises(SourceError, match="is compressed"):
        open_shard(str(source / "a.tar.gz"), NEVER)
    assert shown(open_dataset(str(source))) == FILES
    assert shown(open_dataset(str(source), options=NEVER)) == FILES, "it is decompressed already"
    evict(scratch)
    assert "a/ERROR.txt" in shown(open_dataset(str(source), options=NEVER))


def test_an_index_in_place_moves_with_the_data(source: Path) -> None:
    made = open_dataset(str(source), in_place=True)
    moved = source.parent / "moved"
    shutil.copytree(source, moved, copy_function=shutil.copy2)
    assert dataset_files(open_dataset(str(moved), in_place=True)) == dataset_files(made)
