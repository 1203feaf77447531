"""Indexes of other tools are written beside data of another store, and checked there."""

import json
import sqlite3
import subprocess
from contextlib import closing

import pytest
from command import TOUCHFS
from s3_server import s3_server, upload
from tars import write_tar

from touchfs.containers.tar.layout.grouping import Dialect
from touchfs.peers.lists import judge_list
from touchfs.peers.write import write_index

LINES = b"".join(b'{"id": "line-%d"}\n' % number for number in range(30))


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    place = tmp_path_factory.mktemp("data")
    (place / "lines.jsonl").write_bytes(LINES)
    write_tar(place / "a.tar", {f"s{number}.{end}": b"x" * number for number in range(9) for end in ("txt", "bin")})
    return place


@pytest.fixture(scope="module")
def s3(place, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch, s3_server(patch) as client:
        patch.setenv("TOUCHFS_SCRATCH_DIR", str(tmp_path_factory.mktemp("scratch")))
        upload(client, place, "data/set")
        yield client


def touchfs(*arguments, cwd=None):
    """In one process: others take seconds to start, with the client of a store."""
    run = [TOUCHFS, *arguments, "--jobs", "1"]
    return subprocess.run(run, capture_output=True, text=True, timeout=60, cwd=cwd)


def test_the_same_bytes_as_of_a_local_file(s3, place, tmp_path):
    done = touchfs("index", "jsonl", "s3://data/set/lines.jsonl", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("s3://data/set/lines.jsonl.idx: ")
    write_index("s3://data/set/a.tar", "s3://data/set/a.tar.idx", Dialect.ENERGON)
    for name, dialect in (("lines.jsonl", None), ("a.tar", Dialect.ENERGON)):
        write_index(str(place / name), str(tmp_path / name), dialect)
        assert s3.cat(f"data/set/{name}.idx") == (tmp_path / name).read_bytes()
    assert "indexed already" in touchfs("index", "webdataset", "s3://data/set/a.tar", cwd=tmp_path).stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.tar", "lines.jsonl"]
    s3.pipe("data/set/lines.jsonl", LINES[20:])
    done = touchfs("index", "--check", "s3://data/set")
    assert (done.returncode, done.stdout.count(": fits: ")) == (1, 1)
    assert "s3://data/set/lines.jsonl.idx: stale" in done.stderr


def test_a_pack_of_remote_files(s3, tmp_path):
    done = touchfs("index", "pack", "s3://data/set/a.tar", "-o", "s3://data/packs/a.idxpack", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "s3://data/packs/a.idxpack: 9 samples\n")
    assert list(tmp_path.iterdir()) == []
    done = touchfs("index", "pack", "s3://data/set/a.tar", "-o", "s3://data/packs/a.idxpack")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "already exists" in done.stderr
    assert touchfs("index", "pack", "s3://data/set/a.tar", "-o", tmp_path / "a.idxpack").returncode == 0
    assert s3.cat("data/packs/a.idxpack") == (tmp_path / "a.idxpack").read_bytes()


def write_energons_tables(path, key):
    """Tables of a tar with one sample of one file."""
    path.parent.mkdir(parents=True)
    with closing(sqlite3.connect(path)) as store, store:
        store.execute("CREATE TABLE samples (tar_file_id, sample_key, sample_index, byte_offset, byte_size)")
        store.execute(
            "CREATE TABLE sample_parts (tar_file_id, sample_index, part_name, content_byte_offset, content_byte_size)"
        )
        store.execute("INSERT INTO samples VALUES (0, ?, 0, 0, 1024)", (key,))
        store.execute("INSERT INTO sample_parts VALUES (0, 0, 'txt', 512, 5)")
    return path


def test_energons_tables_are_those_of_the_url(s3, tmp_path):
    """No file of this machine is opened, and no shard outside of the dataset."""
    tables = write_energons_tables(tmp_path / "made/index.sqlite", "key")
    s3.pipe("data/energon/x.tar", write_tar(tmp_path / "x.tar", {"key.txt": b"12345"}).read_bytes())
    s3.pipe("data/energon/.nv-meta/index.sqlite", tables.read_bytes())
    verdicts = []
    for name in ("x.tar", "../energon/x.tar", str(tmp_path / "x.tar"), "gone.tar"):
        s3.pipe("data/energon/.nv-meta/.info.json", json.dumps({"shard_counts": {name: 1}}).encode())
        verdicts += [str(verdict) for verdict in judge_list("s3://data/energon/.nv-meta/index.sqlite")]
    assert "fits: x.tar: 1 sample" in verdicts[0]
    assert all("is not below the list" in verdict for verdict in verdicts[1:3])
    assert "gone.tar: is not there" in verdicts[3]


def test_where_nothing_can_be_written(tmp_path, s3):
    done = touchfs("index", "tar", "s3://data/set/a.tar", "--output-dir", "https://host/x", cwd=tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "nothing is written to https://" in done.stderr
    assert list(tmp_path.iterdir()) == []
