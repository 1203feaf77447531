"""Overlays through the kernel: files of the rows, fields of specs, and a file that changes."""

from __future__ import annotations

import json
import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from mounts import touchfs
from tars import write_tar

pytestmark = pytest.mark.usefixtures("has_libraries")

KEYS = ["000", "001", "002"]


@pytest.fixture
def source(tmp_path):
    for number in range(2):
        members = {f"{number}{key}.jpg": key.encode() for key in KEYS}
        write_tar(tmp_path / f"source/{number}.tar", members)
    return tmp_path / "source"


def step(mounted, where) -> list[str]:
    iterator = mounted.path / ".touchfs" / "iterators" / "it"
    if not iterator.exists():
        iterator.mkdir()
        (iterator / "spec").write_text(json.dumps({"batch": 9, "where": where, "output": "key"}))
    return (iterator / "next").read_text().split()


def test_rows_are_files_and_fields_until_the_overlay_changes(mount, source, tmp_path):
    overlay = tmp_path / "scores.parquet"
    pq.write_table(pa.table({"key": ["0000", "1002"], "score": [0.5, 2.0], "tags": [["a"], None]}), overlay)
    mounted = mount(source, "--overlay", overlay)
    shards = mounted.path / "shards"
    assert sorted(os.listdir(shards / "0")) == [
        *("0000.jpg", "0000.score.txt", "0000.scores.overlay.json", "0001.jpg", "0002.jpg")
    ]
    assert (shards / "1/1002.score.txt").read_bytes() == b"2.0" and (shards / "1/1002.score.txt").stat().st_size == 3
    assert json.loads((mounted.path / "by-key/0000.scores.overlay.json").read_bytes()) == {"score": 0.5, "tags": ["a"]}
    assert (shards / "0/0000.jpg").read_bytes() == b"000"
    assert step(mounted, "score > 1") == ["1002"]

    pq.write_table(pa.table({"key": ["0001"], "score": [7]}), overlay)
    assert touchfs("reload", mounted.path).returncode == 0
    assert (shards / "0/0001.score.txt").read_bytes() == b"7" and not (shards / "1/1002.score.txt").exists()
    with pytest.raises(OSError):
        step(mounted, "")
    assert "the dataset has changed" in (mounted.path / ".touchfs/iterators/it/error").read_text()


def test_parquet_files_of_img2dataset_are_overlays_of_their_tars(mount, source):
    pq.write_table(pa.table({"key": ["0000", "0001"], "caption": ["one", "two"]}), source / "0.parquet")
    pq.write_table(pa.table({"url": ["0000"], "caption": ["no keys"]}), source / "1.parquet")
    mounted = mount(source)
    shards = mounted.path / "shards"
    assert (shards / "0/0001.caption.txt").read_bytes() == b"two"
    assert json.loads((shards / "0/0000.overlay.json").read_bytes()) == {"caption": "one"}
    assert sorted(os.listdir(shards / "1")) == ["1000.jpg", "1001.jpg", "1002.jpg"]
    assert step(mounted, 'caption == "two"') == ["0001"]


def test_a_bad_overlay_is_refused_when_it_is_mounted(mount, source, tmp_path):
    (tmp_path / "scores.jsonl").write_text('{"key": "0000"}\n{"key": "0000"}\n')
    done = touchfs("mount", "--overlay", tmp_path / "scores.jsonl", source, tmp_path / "mnt")
    assert done.returncode == 2, done
    assert done.stderr.endswith("scores.jsonl: rows 1 and 2 have the key '0000': leave one row for each key\n")
