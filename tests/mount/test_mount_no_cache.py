"""The index cannot be kept in the user's cache, or is not to be: it is in memory, as long as the mount lasts."""

import gzip
import json
import os
import subprocess
from pathlib import Path

import pytest
from mounts import SPEECH, is_mounted, touchfs
from small_disks import AS_ROOT, fill, small_disk
from waiting import wait_until

MONDAY = "shards/000000000/talks/monday.txt"


def in_memory(point: Path) -> set[str]:
    """The directories in memory that the processes of a mount have open."""
    pid = json.loads((point / ".touchfs/info").read_bytes())["pid"]
    opened = {os.readlink(file) for file in Path(f"/proc/{pid}/fd").iterdir()}
    return {path for path in opened if path.startswith("/dev/shm/touchfs-index-")}


@pytest.fixture
def shards(tmp_path) -> Path:
    path = tmp_path / "shards"
    assert touchfs("pack", "touchnet", SPEECH / "speech.jsonl", path, "--num-utt-per-shard", 4).returncode == 0
    (path / "data.list").unlink()
    (path / "000000002").rename(tmp_path / "later")
    return path


def mounted_in_memory(shards: Path, tmp_path: Path, cache: Path, *options: str) -> str:
    """What the command says on stderr. What is added is shown after a reload, and nothing is left at the end."""
    environment, point = os.environ | {"XDG_CACHE_HOME": str(cache)}, tmp_path / "mnt"
    done = touchfs("mount", shards, point, *options, "--state-dir", tmp_path / "state", env=environment)
    assert done.returncode == 0, done.stderr
    try:
        assert (point / MONDAY).read_text() == "Good morning. This is a talk."
        assert (point / "by-key/talks%2Fmonday.txt").exists()
        (tmp_path / "later").rename(shards / "000000002")
        assert touchfs("reload", point).returncode == 0
        assert sorted(os.listdir(point / "shards")) == ["000000000", "000000001", "000000002"]
        assert (next((point / "shards/000000002").rglob("*.txt"))).read_bytes()
        (index,) = in_memory(point)
        assert os.listdir(index)
    finally:
        assert touchfs("umount", point).returncode == 0
    wait_until(lambda: not os.path.exists(index))
    return done.stderr


def test_a_cache_that_cannot_be_written(shards, tmp_path):
    with small_disk(tmp_path / "cache", "ro") as cache:
        assert "the index is kept in memory" in mounted_in_memory(shards, tmp_path, cache)


def test_one_that_cannot_be_made(shards, tmp_path):
    (tmp_path / "file").touch()
    assert "the index is kept in memory" in mounted_in_memory(shards, tmp_path, tmp_path / "file" / "cache")


def test_one_that_is_not_wanted(shards, tmp_path):
    (tmp_path / "cache").mkdir()
    assert mounted_in_memory(shards, tmp_path, tmp_path / "cache", "--no-index-cache") == ""
    assert not list((tmp_path / "cache").rglob("*.arrow"))


def test_one_that_is_full_is_an_error_that_says_what_helps(shards, tmp_path):
    with small_disk(tmp_path / "cache") as cache:
        fill(cache)
        environment = os.environ | {"XDG_CACHE_HOME": str(cache)}
        done = touchfs("mount", shards, tmp_path / "mnt", "--state-dir", tmp_path / "state", env=environment)
        assert done.returncode == 14
        assert "No space left on device" in done.stderr and "--no-index-cache" in done.stderr
        assert done.stderr.count("\n") == 1
        assert not is_mounted(tmp_path / "mnt")
        mounted_in_memory(shards, tmp_path, cache, "--no-index-cache")


def test_one_that_cannot_be_written_any_more_when_there_is_more_to_index(shards, tmp_path):
    """Another such mount takes away what nobody uses. The index that a reload has made is in use."""
    (cache := tmp_path / "cache").mkdir()
    subprocess.run([*AS_ROOT, "mount", "-t", "tmpfs", "-o", "mode=777", "tmpfs", cache], check=True)
    state, point, other = tmp_path / "state", tmp_path / "mnt", tmp_path / "other"
    environment = os.environ | {"XDG_CACHE_HOME": str(cache)}
    try:
        assert touchfs("mount", shards, point, "--state-dir", state, env=environment).returncode == 0
        subprocess.run([*AS_ROOT, "mount", "-o", "remount,ro", cache], check=True)
        (tmp_path / "later").rename(shards / "000000002")
        assert touchfs("reload", point).returncode == 0
        done = touchfs("mount", shards, other, "--no-index-cache", "--state-dir", state, env=environment)
        assert done.returncode == 0, done.stderr
        assert touchfs("umount", other).returncode == 0
        assert next((point / "shards/000000002").rglob("*.txt")).read_bytes()
        assert (point / MONDAY).read_text() == "Good morning. This is a talk."
        (index,) = in_memory(point)
    finally:
        touchfs("umount", point)
        subprocess.run([*AS_ROOT, "umount", "-l", cache], check=True)
    assert not os.path.exists(index)


def test_a_compressed_shard_that_is_damaged_says_so_there_too(tmp_path):
    (data := tmp_path / "data").mkdir()
    (data / "good.jsonl").write_text('{"id": "a"}\n')
    (data / "bad.jsonl.gz").write_bytes(gzip.compress(b'{"id": "b"}\n')[:-4])
    point, state, scratch = tmp_path / "mnt", tmp_path / "state", tmp_path / "scratch"
    places = "--state-dir", state, "--scratch-dir", scratch
    assert touchfs("mount", data, point, "--no-index-cache", *places).returncode == 0
    try:
        report = point / "shards/bad/ERROR.txt"
        wait_until(report.exists)
        assert "its gzip data was cut off" in report.read_text()
    finally:
        assert touchfs("umount", point).returncode == 0
