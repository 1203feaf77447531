"""Splits and the values of directories, through the kernel."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from mounts import touchfs
from waiting import wait_until

pytestmark = pytest.mark.usefixtures("has_libraries")


def write(path: Path, *ids: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"id": ids}), path)


@pytest.fixture
def source(tmp_path):
    source = tmp_path / "source"
    for place, ids in (("train/0", "ab"), ("train/1", "c"), ("test/0", "de"), ("other/x=1/2", "f")):
        write(source / f"{place}.parquet", *ids)
    return source


def step(mounted) -> list[str]:
    iterator = mounted.path / ".touchfs" / "iterators" / "it"
    iterator.mkdir()
    (iterator / "spec").write_text(json.dumps({"batch": 9}))
    return [Path(path).stem for path in (iterator / "next").read_text().split()]


def test_splits_have_directories(mount, source):
    mounted = mount(source)
    shards = mounted.path / "shards"
    assert sorted(os.listdir(shards)) == ["2", "test", "train"]
    assert sorted(os.listdir(shards / "train")) == ["0~2", "1"]
    assert [json.loads(path.read_bytes())["id"] for path in sorted(shards.glob("t*/*/*"))] == [*"deabc"]
    assert [json.loads((mounted.path / "by-key" / f"{key}.json").read_bytes())["id"] for key in "aef"] == [*"aef"]
    assert json.loads((shards / "2" / "f.json").read_bytes()) == {"id": "f", "x": 1}
    inode = (shards / "train").stat().st_ino
    assert (shards / "train" / "..").stat().st_ino == shards.stat().st_ino != inode
    assert not (shards / "0").exists() and not (shards / "test" / "1").exists()
    assert mounted.info()["splits"] == {"train": 3, "test": 2}

    write(source / "dev" / "3.parquet", "g")
    write(source / "train" / "1.parquet", "c", "h")
    assert touchfs("reload", mounted.path).returncode == 0
    wait_until(lambda: (shards / "validation" / "3" / "g.json").exists())
    assert sorted(os.listdir(shards / "train" / "1")) == ["c.json", "h.json"]
    assert (shards / "train").stat().st_ino == inode

    for split in ("train", "test"):
        (source / split).rename(source.parent / split)
    assert touchfs("reload", mounted.path).returncode == 0
    wait_until(lambda: sorted(os.listdir(shards)) == ["2", "3"])  # one split needs no directory
    assert not (shards / "train").exists()


def test_one_split(mount, source):
    mounted = mount(source, "-o", "split=train")
    assert sorted(os.listdir(mounted.path / "shards")) == ["0", "1"]
    assert mounted.info()["samples"] == 3
    assert step(mounted) == [*"abc"]
    assert touchfs("iterator", "list", mounted.path, "--split", "test").returncode == 2
    mounted.end()
    assert step(mount(source, "--split", "test")) == [*"de"]
    assert touchfs("iterator", "list", source, "--split", "train").stdout.splitlines()[1].split()[0] == "it"


def test_an_unknown_split_is_not_mounted(source, tmp_path):
    done = touchfs("mount", source, tmp_path / "mnt", "--split", "dev")
    assert done.returncode == 2
    assert "no split 'dev': there are train, test" in done.stderr
