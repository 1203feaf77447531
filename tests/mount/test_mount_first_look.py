"""A mount whose shards are not indexed yet: it is there at once, and each is indexed when somebody looks into it."""

import errno
import fcntl
import json
import logging
import os
import random
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from moto.core import DEFAULT_ACCOUNT_ID
from moto.s3.models import s3_backends
from mount_numbers import numbers_of
from mounts import SPEECH, Mount, indexers, touchfs
from range_server import range_server
from s3_server import s3_server
from slow import slow
from small_disks import fill, small_disk
from tars import Endless, write_tar
from waiting import wait_until

from touchfs.indexing import list_dataset

SHARDS = 8
MEMBERS = 4
MANY = 1000


@pytest.fixture(autouse=True)
def index(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "touchfs" / "index"


@pytest.fixture
def tars(tmp_path) -> Path:
    for number in range(SHARDS):
        members = {f"t{number}-{each}.txt": b"%d %d\n" % (number, each) for each in range(MEMBERS)}
        write_tar(tmp_path / "tars" / f"t{number}.tar", members)
    return tmp_path / "tars"


def catalogs(index: Path) -> int:
    return len(list(index.glob("*.arrow"))) if index.exists() else 0


def shards_in_stats(mounted: Mount, what: str = "") -> float:
    return numbers_of(mounted)[f"touchfs_{what}shards",]


@contextmanager
def locked(index: Path, *stems: str) -> Iterator[None]:
    """Shards that cannot be indexed meanwhile: somebody else has the turn to make their catalogs."""
    index.mkdir(parents=True, exist_ok=True, mode=0o700)
    with ExitStack() as files:
        for stem in stems:
            fcntl.flock(files.enter_context(open(f"{stem}.lock", "a")), fcntl.LOCK_EX)
        yield


def catalog_of(source: Path, name: str) -> str:
    return next(each.catalog for each in list_dataset(str(source)).listed if each.name == name)


def shown(directory: Path) -> dict[str, tuple[int, object]]:
    """All below a directory by path: the inode number, and the bytes, the target of a link, or nothing."""
    found: dict[str, tuple[int, object]] = {}
    for path in sorted(directory.rglob("*")):
        status = path.lstat()
        content = None if path.is_dir() else os.readlink(path) if path.is_symlink() else path.read_bytes()
        found[str(path.relative_to(directory))] = status.st_ino, content
    return found


def test_only_what_is_looked_into_is_indexed(mount, tars, index):
    mounted = mount(tars, "--indexing", "touch")
    assert sorted(os.listdir(mounted.path / "shards")) == [f"t{number}" for number in range(SHARDS)]
    assert (mounted.path / "shards" / "t3").is_dir()
    assert subprocess.run(["df", mounted.path], check=False, stdout=subprocess.DEVNULL).returncode == 0
    assert catalogs(index) == 0
    assert (mounted.path / "shards" / "t3" / "t3-1.txt").read_bytes() == b"3 1\n"
    assert catalogs(index) == 1
    info = mounted.info()
    assert (info["shards"], info["indexed_shards"], info["samples"]) == (SHARDS, 1, None)
    assert f"tar, {SHARDS} shards, 1 indexed yet" in touchfs("status", mounted.path).stdout
    wait_until(lambda: [shards_in_stats(mounted), shards_in_stats(mounted, "indexed_")] == [SHARDS, 1])
    assert re.search(r"^indexed shards +1$", touchfs("status", "--stats", mounted.path).stdout, re.MULTILINE)
    assert indexers(mounted) == []
    assert touchfs("reload", mounted.path).stdout.endswith(f"({SHARDS} shards, 1 indexed yet)\n")
    assert (mounted.path / "shards" / "t4" / "t4-0.txt").read_bytes() == b"4 0\n"
    assert catalogs(index) == 2


def test_the_message_says_how_many_are_indexed(tars, tmp_path):
    done = touchfs("mount", tars, tmp_path / "mnt", "--indexing", "touch")
    try:
        assert done.stdout == f"{tars} is mounted at {tmp_path / 'mnt'} ({SHARDS} shards, 0 indexed yet)\n"
    finally:
        assert touchfs("umount", tmp_path / "mnt").returncode == 0


def test_few_and_small_shards_are_indexed_at_once(mount, tars, index):
    mounted = mount(tars)
    assert (mounted.info()["samples"], mounted.info()["generation"]) == (SHARDS * MEMBERS, 1)


@pytest.mark.parametrize("option", [("--strict",), ("--verify",)])
def test_what_needs_all_refuses_another_time(tars, tmp_path, option):
    done = touchfs("mount", tars, tmp_path / "mnt", *option, "--indexing", "touch")
    assert done.returncode == 2
    assert f"{option[0]} needs all shards indexed" in done.stderr


def test_all_are_indexed_in_the_background(mount, tars, index):
    """The mount then is that of a dataset that was indexed before, without the views that it does not have."""
    mounted = mount(tars, "--indexing", "background")
    wait_until(lambda: mounted.info()["samples"] == SHARDS * MEMBERS)
    wait_until(lambda: "interleaved" not in os.listdir(mounted.path))
    assert "slices" not in os.listdir(mounted.path)
    info = mounted.info()
    assert (info["generation"], info["shards_with_errors"], info["internal_errors"]) == (2, [], 0)
    assert os.readlink(mounted.path / "by-key" / "t7-3.txt") == "../shards/t7/t7-3.txt"
    wait_until(lambda: not indexers(mounted))
    wait_until(lambda: shards_in_stats(mounted, "indexed_") == SHARDS)


def test_a_token_names_all_shards(mount, tars):
    path = mount(tars, "--indexing", "touch").path / "shards/t5/t5-1.txt"
    token = os.getxattr(path, "user.touchfs.token")
    assert token == os.getxattr(mount(tars, name="again").path / "shards/t5/t5-1.txt", "user.touchfs.token")


def test_before_and_after_are_the_same(mount, zoo, tmp_path, monkeypatch):
    """Each shard of the zoo, damaged ones included, and what needs all of them."""
    before = mount(zoo, "--indexing", "wait")
    expected = shown(before.path / "shards") | shown(before.path / "segments")
    listed = sorted(os.listdir(before.path))
    others = {view: shown(before.path / view) for view in ("manifests", "slices")}
    assert touchfs("umount", before.path).returncode == 0
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "another"))
    mounted = mount(zoo, "--indexing", "touch")
    assert shown(mounted.path / "shards") | shown(mounted.path / "segments") == expected
    assert {view: shown(mounted.path / view) for view in others} == others
    wait_until(lambda: mounted.info()["samples"] is not None)
    wait_until(lambda: sorted(os.listdir(mounted.path)) == listed)
    assert shown(mounted.path / "shards") | shown(mounted.path / "segments") == expected
    assert mounted.info()["internal_errors"] == 0


def test_a_key_waits_for_the_shards_before_it(mount, tars, index):
    """Without a wrong answer meanwhile, and without one that the kernel keeps."""
    with locked(index, catalog_of(tars, "t5")):
        mounted = mount(tars, "--indexing", "background")
        wait_until(lambda: catalogs(index) >= SHARDS - 3)
        readers = [
            subprocess.Popen(["readlink", mounted.path / "by-key" / name], stdout=subprocess.PIPE, text=True)
            for name in ("t6-0.txt", "none.txt")
        ]
        with pytest.raises(subprocess.TimeoutExpired):
            readers[0].wait(1)
        assert readers[1].poll() is None
        assert (mounted.path / "shards" / "t1" / "t1-0.txt").read_bytes() == b"1 0\n"
    assert [reader.communicate()[0] for reader in readers] == ["../shards/t6/t6-0.txt\n", ""]
    assert os.readlink(mounted.path / "by-key" / "t6-0.txt") == "../shards/t6/t6-0.txt"


def test_after_the_time_out_it_says_how_far_it_is(mount, tars, index):
    with locked(index, catalog_of(tars, "t0")):
        mounted = mount(tars, "--indexing", "touch", "--timeout", 4)
        with pytest.raises(OSError) as refused:
            os.readlink(mounted.path / "by-key" / "t6-0.txt")
        assert refused.value.errno == errno.EAGAIN
        told = (mounted.path / ".touchfs" / "errors").read_text()
        assert f"of {SHARDS} shards are indexed" in told
    wait_until(lambda: mounted.info()["samples"] == SHARDS * MEMBERS)
    assert os.readlink(mounted.path / "by-key" / "t6-0.txt") == "../shards/t6/t6-0.txt"


def test_steps_wait_for_all_and_begin_by_themselves(mount, tars):
    mounted = mount(tars, "--indexing", "touch")
    iterator = mounted.path / ".touchfs" / "iterators" / "it"
    iterator.mkdir()
    (iterator / "spec").write_text(json.dumps({"shuffle": 1, "batch": SHARDS * MEMBERS}))
    lines = (iterator / "next").read_text().splitlines()
    assert len(set(lines)) == SHARDS * MEMBERS
    assert (iterator / "token").read_bytes()


def test_a_walk_indexes_no_more_than_it_may(mount, tars, index):
    mounted = mount(tars, "--indexing", "touch", "--indexing-walk", 3)
    found = subprocess.run(["find", mounted.path / "shards"], capture_output=True, text=True, check=False)
    assert found.stdout.count(".txt") == 3 * MEMBERS
    assert found.stderr.count("Resource temporarily unavailable") == SHARDS - 3
    assert catalogs(index) == 3
    told = (mounted.path / ".touchfs" / "errors").read_text()
    assert "find (pid " in told
    assert "--indexing-walk" in told
    assert "`touchfs index`" in told
    for number in range(SHARDS):  # what is named is wanted
        assert (mounted.path / f"shards/t{number}/t{number}-2.txt").read_bytes() == b"%d 2\n" % number
    again = subprocess.run(["find", mounted.path / "shards"], capture_output=True, text=True, check=True)
    assert again.stdout.count(".txt") == SHARDS * MEMBERS


@pytest.mark.parametrize("option", [("--indexing-walk", 0), ("--indexing", "background")])
def test_a_walk_has_no_limit_where_all_are_wanted(mount, tars, option):
    mounted = mount(tars, "--indexing", "touch", "--indexing-walk", 3, *option)
    found = subprocess.run(["find", mounted.path / "shards"], capture_output=True, text=True, check=True)
    assert found.stdout.count(".txt") == SHARDS * MEMBERS


def test_the_background_goes_on_when_it_is_killed(mount, tars, index):
    stem = catalog_of(tars, "t4")
    with locked(index, stem):
        mounted = mount(tars, "--indexing", "background")
        first = wait_until(lambda: indexers(mounted))
        wait_until(lambda: catalogs(index) >= 4)
        os.kill(first[0], signal.SIGKILL)
        second = wait_until(lambda: [pid for pid in indexers(mounted) if pid not in first])
        assert second
    wait_until(lambda: mounted.info()["samples"] == SHARDS * MEMBERS)


@pytest.fixture
def stopped(mount, tars, tmp_path) -> Iterator[tuple[Mount, int, Path]]:
    """A mount, the process that indexes in its background, which has begun with a tar and gets no time from others, and
    the lock that this holds.
    """
    (tmp_path / "big").mkdir()
    write_tar(tmp_path / "big/big.tar", {f"{n:06}.txt": b"%d\n" % n for n in range(MANY)})
    with slow(tmp_path / "big", tmp_path / "slow") as files:
        (tars / "big.tar").symlink_to(files.path / "big.tar")
        lock = Path(f"{catalog_of(tars, 'big')}.background.lock")
        files.take(0, reads=1000)  # it does not end before it is stopped
        mounted = mount(tars, "--indexing", "background")
        wait_until(lock.exists)
        (pid,) = indexers(mounted)
        os.kill(pid, signal.SIGSTOP)
        files.take(0)
        yield mounted, pid, lock


@pytest.mark.parametrize("end", [signal.SIGCONT, signal.SIGKILL])
def test_nobody_waits_for_the_background(stopped, index, end):
    """A reader who wants the very shard that it indexes has it indexed by a worker."""
    mounted, pid, lock = stopped
    reader = subprocess.run(["cat", mounted.path / "shards/big/000007.txt"], stdout=subprocess.PIPE, timeout=60)
    assert reader.stdout == b"7\n"
    os.kill(pid, end)
    wait_until(lambda: mounted.info()["samples"] == SHARDS * MEMBERS + MANY)
    assert catalogs(index) == SHARDS + 1
    wait_until(lambda: not indexers(mounted))
    left = [path.name for path in index.iterdir() if "background" in path.name]
    assert left == ([lock.name] if end == signal.SIGKILL else [])  # who is killed holds no lock, but leaves its file
    assert mounted.info()["internal_errors"] == 0


def test_a_key_does_not_wait_for_a_process_of_low_priority(stopped, index):
    """Once a reader waits for all, they are indexed as fast as the machine can."""
    mounted, slow_one, _ = stopped
    assert os.getpriority(os.PRIO_PROCESS, slow_one) == os.getpriority(os.PRIO_PROCESS, 0) + 10
    reader = subprocess.Popen(["readlink", mounted.path / "by-key" / "t6-0.txt"], stdout=subprocess.PIPE, text=True)
    [fast_one] = wait_until(lambda: [pid for pid in indexers(mounted) if pid != slow_one])
    assert os.getpriority(os.PRIO_PROCESS, fast_one) == os.getpriority(os.PRIO_PROCESS, 0)
    assert reader.communicate()[0] == "../shards/t6/t6-0.txt\n"
    os.kill(slow_one, signal.SIGCONT)
    wait_until(lambda: not indexers(mounted))
    assert catalogs(index) == SHARDS + 1
    assert mounted.info()["internal_errors"] == 0


def test_workers_that_are_killed_while_they_index(mount, tars, index):
    stem = catalog_of(tars, "t2")
    with locked(index, stem):
        mounted = mount(tars, "--indexing", "touch")
        reader = subprocess.Popen(["cat", mounted.path / "shards/t2/t2-1.txt"], stdout=subprocess.PIPE)
        wait_until(lambda: Path(f"/proc/{reader.pid}/wchan").read_text() == "request_wait_answer")
        for worker in mounted.workers():
            os.kill(worker, signal.SIGKILL)
    assert reader.communicate()[0] == b"2 1\n"
    assert reader.returncode == 0


def test_a_shard_that_hangs_delays_no_other(mount, tars, tmp_path):
    with slow(tars, tmp_path / "slow") as files:
        both = tmp_path / "both"
        both.mkdir()
        (both / "t1.tar").symlink_to(files.path / "t1.tar")
        (both / "t2.tar").symlink_to(tars / "t2.tar")
        mounted = mount(both, "--indexing", "touch")
        files.hang()
        waiting = subprocess.Popen(["ls", mounted.path / "shards/t1"], stdout=subprocess.PIPE, text=True)
        assert (mounted.path / "shards/t2/t2-0.txt").read_bytes() == b"2 0\n"
        assert waiting.poll() is None
        files.go_on()
        assert len(waiting.communicate()[0].split()) == MEMBERS


def read_in_time(path: Path) -> bytes:
    """Nothing if the machine was busy for the time of the time-out."""
    with suppress(TimeoutError, BlockingIOError):
        return path.read_bytes()
    return b""


def test_a_shard_that_never_ends_delays_no_other(mount, tars):
    with range_server() as server:
        server.put("/t0.tar", Endless())
        server.put("/t1.tar", (tars / "t1.tar").read_bytes())
        mounted = mount(f"{server.url}/t{{0..1}}.tar", "--timeout", 2)
        waiting = subprocess.Popen(["ls", mounted.path / "shards/t0"], stderr=subprocess.PIPE, text=True)
        wait_until(lambda: any(path == "/t0.tar" for path, _, _ in server.ranges))
        assert wait_until(lambda: read_in_time(mounted.path / "shards/t1/t1-0.txt")) == b"1 0\n"
        assert "timed out" in waiting.communicate(timeout=60)[1]


def test_a_shard_that_changes_or_is_damaged_before_anybody_looks(mount, tars):
    mounted = mount(tars, "--indexing", "touch")
    (tars / "t1.tar").write_bytes((tars / "t1.tar").read_bytes()[:700])
    write_tar(tars / "t2.tar", {"new.txt": b"new"})
    os.unlink(tars / "t3.tar")
    assert os.listdir(mounted.path / "shards/t2") == ["new.txt"]
    assert "ERROR.txt" in os.listdir(mounted.path / "shards/t1")
    assert "ERROR.txt" in os.listdir(mounted.path / "shards/t3")
    assert (mounted.path / "shards/t4/t4-0.txt").read_bytes() == b"4 0\n"


@pytest.mark.parametrize("how", ["--no-index-cache", "unwritable"])
def test_an_index_in_memory_is_that_of_all_processes(mount, tars, index, how, monkeypatch, tmp_path):
    options: list[Any] = [how] if how.startswith("-") else []
    if not options:
        place = tmp_path / "file"
        place.write_bytes(b"")
        monkeypatch.setenv("XDG_CACHE_HOME", str(place))
    mounted = mount(tars, "--indexing", "touch", "--workers", 2, *options)
    for number in range(SHARDS):
        assert len(os.listdir(mounted.path / f"shards/t{number}")) == MEMBERS
    assert mounted.info()["indexed_shards"] == SHARDS
    assert os.readlink(mounted.path / "by-key" / "t6-0.txt") == "../shards/t6/t6-0.txt"
    assert catalogs(index) == 0


def test_segments_of_one_shard(mount, tmp_path):
    done = touchfs("pack", "touchnet", SPEECH / "speech.jsonl", tmp_path / "speech", "--num-utt-per-shard", 4)
    assert done.returncode == 0
    mounted = mount(tmp_path / "speech", "--indexing", "touch")
    shard = sorted(os.listdir(mounted.path / "segments"))[0]
    assert list((mounted.path / "segments" / shard).iterdir())
    assert mounted.info()["indexed_shards"] == 1


def test_files_of_a_sample_wait_for_no_contents(mount, tmp_path, index):
    wav = next((SPEECH / "wav").iterdir()).read_bytes()
    said = b'{"segments": [{"start": 0.1, "end": 0.2}]}'
    for name in "ab":
        write_tar(tmp_path / "talks" / f"{name}.tar", {f"{each}.wav": wav for each in "xy"} | {"x.json": said})
    mounted = mount(tmp_path / "talks", "--indexing", "touch")
    talk = mounted.path / "shards" / "b"
    inodes = {path.name: path.stat().st_ino for path in talk.iterdir()}
    assert (talk / "x.wav").read_bytes() == wav and sorted(inodes) == ["x.json", "x.wav", "y.wav"]
    assert (catalogs(index), len(list(index.glob("*.headers"))), mounted.info()["indexed_shards"]) == (0, 1, 0)
    assert os.listdir(mounted.path / "segments" / "b" / "x") == ["0000.json", "0000.wav"]
    assert (catalogs(index), len(list(index.glob("*.headers"))), mounted.info()["indexed_shards"]) == (1, 0, 1)
    touchfs("reload", mounted.path)
    assert {path.name: path.stat().st_ino for path in talk.iterdir()} == inodes


def test_of_a_server_only_what_is_looked_at_is_read(mount, tars):
    """By default, and as a new user tries it: many names, and a look into one of them."""
    big = random.Random(1).randbytes(1 << 20)
    with range_server() as server:
        shard = write_tar(tars / "big.tar", {f"s{each}.bin": big for each in range(10)}).read_bytes()
        for number in range(20):
            server.put(f"/t-{number:02}.tar", shard)
        mounted = mount(f"{server.url}/t-{{00..19}}.tar")
        assert len(os.listdir(mounted.path / "shards")) == 20
        assert server.ranges == []
        assert sorted(os.listdir(mounted.path / "shards/t-07")) == [f"s{each}.bin" for each in range(10)]
        assert {path for path, _, _ in server.ranges} == {"/t-07.tar"}
        assert sum(end - start for _, start, end in server.ranges) < 10 << 20
        assert (mounted.path / "shards/t-07/s3.bin").read_bytes() == big
        assert {path for path, _, _ in server.ranges} == {"/t-07.tar"}
        os.readlink(mounted.path / "by-key/s0.bin")  # of all
        assert len({path for path, _, _ in server.ranges}) == 20
        mounted.end()
        for path, (data, _) in list(server.files.items()):  # all have changed, and nobody looks
            server.put(path, data, '"2"')
        server.ranges.clear()
        mounted = mount(f"{server.url}/t-{{00..19}}.tar", name="again")
        assert len(os.listdir(mounted.path / "shards")) == 20
        assert server.ranges == []


def test_names_with_braces_in_a_bucket(mount, tmp_path, monkeypatch, caplog):
    """Pages of a listing are asked for, and one shard of 1,100. Other directories beside them are not looked into."""
    shard = write_tar(tmp_path / "train.tar", {f"{each}.txt": b"%d\n" % each for each in range(20)}).read_bytes()
    with s3_server(monkeypatch):
        names = [*(f"train-{number:05}.tar" for number in range(1_100)), "other/below/a.tar"]
        for name in names:
            s3_backends[DEFAULT_ACCOUNT_ID]["aws"].put_object("data", name, shard)
        with caplog.at_level(logging.INFO, "werkzeug"):
            mounted = mount("s3://data/train-{00000..01099}.tar")
            looked = subprocess.run(
                "ls shards/train-00007 | head", shell=True, cwd=mounted.path, stdout=subprocess.PIPE
            )
            assert looked.stdout.splitlines() == sorted(b"%d.txt" % each for each in range(20))[:10]
            mounted.end()
    asked = [record.getMessage() for record in caplog.records if record.name == "werkzeug"]
    of_shards = [line for line in asked if re.search(r"/train-\d+\.tar", line)]
    assert of_shards
    assert all("/train-00007.tar" in line for line in of_shards)
    assert not any("other" in line for line in asked)
    assert len(asked) <= 30, asked


def test_where_there_is_no_room_for_an_index(mount, tars, tmp_path, monkeypatch):
    """The shards that were indexed before are served, and nobody waits for ever for the others."""
    with small_disk(tmp_path / "disk") as disk:
        monkeypatch.setenv("XDG_CACHE_HOME", str(disk))
        mounted = mount(tars, "--indexing", "touch")
        assert len(os.listdir(mounted.path / "shards/t1")) == MEMBERS
        fill(disk, 1000)
        for path in ("shards/t2/t2-0.txt", "by-key/t2-0.txt"):
            with pytest.raises(OSError) as refused:
                os.lstat(mounted.path / path)
            assert refused.value.errno == errno.EIO
        assert "No space left" in (mounted.path / ".touchfs" / "errors").read_text()
        assert (mounted.path / "shards/t1/t1-0.txt").read_bytes() == b"1 0\n"
