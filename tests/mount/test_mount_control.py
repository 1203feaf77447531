"""What the mount tells of itself: `.touchfs/info`, extended attributes, statfs, and what the kernel need not ask."""

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest
from mounts import SPEECH, samples_of, touchfs
from processes import runs
from small_disks import refused
from waiting import wait_until

MONDAY = "shards/000000000/talks/monday"


def test_info(mounted, zoo):
    told = mounted.info()
    assert (told["source"], told["mounted_at"]) == (str(zoo), str(mounted.path))
    assert told["shards"] == len(list(zoo.iterdir()))
    assert told["samples"] == 10 + 5 + len(os.listdir(mounted.path / "shards" / "wide"))
    assert told["workers"] == len(mounted.workers()) in (1, 2)
    assert told["internal_errors"] == 0
    assert mounted.info()["requests"] > told["requests"] > 0


def test_info_is_one_text_for_each_open(mounted):
    path = mounted.path / ".touchfs" / "info"
    with open(path, "rb", 0) as first, open(path, "rb", 0) as second:
        whole = first.read(100)
        while piece := first.read(7):
            (mounted.path / "a name that is not there").exists()
            whole += piece
        assert json.loads(second.read())["requests"] > json.loads(whole)["requests"]
    assert path.stat().st_size == 0


def test_many_open_info_at_once(mounted):
    path = mounted.path / ".touchfs" / "info"
    with contextlib.ExitStack() as stack, ThreadPoolExecutor(16) as threads:
        files = list(threads.map(lambda _: stack.enter_context(open(path, "rb")), range(100)))
        texts = list(threads.map(lambda file: json.loads(file.read()), files))
    assert {told["pid"] for told in texts} == {mounted.pid}


def test_the_state_store_forgets_what_is_closed(mount, speech, tmp_path):
    mounted = mount(speech, "--state-dir", tmp_path / "state")
    (store,) = (tmp_path / "state").glob("*.sqlite")

    def opens() -> int:
        with contextlib.closing(sqlite3.connect(store)) as connection:
            return connection.execute("SELECT count(*) FROM open").fetchone()[0]

    train = mounted.path / ".touchfs/iterators/train"
    train.mkdir()
    for _ in range(150):
        (train / "next").read_bytes()
    wait_until(lambda: opens() <= 128)
    for _ in range(2):
        assert touchfs("reload", mounted.path).returncode == 0
        (train / "next").read_bytes()
    wait_until(lambda: opens() <= 1)


def test_attributes_tell_where_bytes_are(mounted, zoo):
    path = mounted.path / (MONDAY + ".wav")
    names = {"shard", "field", "key", "ordinal", "offset", "size"}
    assert set(os.listxattr(path)) == {f"user.touchfs.{name}" for name in {*names, "token"}}
    told = {name: os.getxattr(path, f"user.touchfs.{name}").decode() for name in names}
    size = len((SPEECH / "wav" / "01.wav").read_bytes()) - 44
    assert told == {
        "shard": "000000000",
        "field": "audio",
        "key": "talks/monday",
        "ordinal": "0",
        "offset": "0",
        "size": str(size),
    }
    assert samples_of(zoo / "000000000", "audio")[0] == path.read_bytes()[44:]
    reason = os.getxattr(mounted.path / "shards/mixed/no rate.pcm", "user.touchfs.reason").decode()
    assert "--sample-rate" in reason


def test_attributes_that_are_not_there(mounted):
    for name in (MONDAY + ".wav", "shards", ""):
        path = mounted.path / name
        assert refused(os.getxattr, path, "user.touchfs.nothing") == "ENODATA"
        assert refused(os.getxattr, path, "user.other") == "ENODATA"
        for known in ("system.posix_acl_access", "security.capability", "trusted.x"):
            assert refused(os.getxattr, path, known) == "ENOTSUP"
    assert os.listxattr(mounted.path / "shards") == []
    assert os.listxattr(mounted.path / ".touchfs", follow_symlinks=False) == []
    for name in (".touchfs/info", ".touchfs"):  # there are none at all
        assert refused(os.getxattr, mounted.path / name, "user.touchfs.nothing") == "ENOTSUP"
        assert refused(os.listxattr, mounted.path / name) == "ENOTSUP"


def test_statfs(mounted, zoo):
    told = os.statvfs(mounted.path)
    assert told.f_blocks * told.f_frsize >= sum(path.stat().st_size for path in zoo.glob("[0m]*/*.bin"))
    assert (told.f_bfree, told.f_bavail, told.f_namemax) == (0, 0, 255)
    assert told.f_files == mounted.info()["samples"]
    assert "fuse.touchfs" in subprocess.run(["df", "-T", mounted.path], capture_output=True, text=True).stdout


def test_what_the_kernel_knows_it_does_not_ask_again(mounted):
    """Names that are missing, attributes, and the bytes of a file that was read."""
    sound, missing = mounted.path / (MONDAY + ".wav"), mounted.path / "shards/000000000/talks/nothing.wav"

    def look() -> None:
        assert not missing.exists()
        with open(sound, "rb", 0) as file:  # unbuffered: else Python asks, by an ioctl, whether it is a terminal
            assert len(file.read()) == sound.stat().st_size

    look()
    before = mounted.info()["requests"]
    for _ in range(100):
        look()
    assert mounted.info()["requests"] - before < 5, "what reading info takes"


def test_rows_of_killed_processes_are_deleted_while_the_mount_lasts(mount, speech, tmp_path):
    mounted = mount(speech, "--state-dir", tmp_path / "state")
    (store,) = (tmp_path / "state").glob("*.sqlite")
    train = mounted.path / ".touchfs/iterators/train"
    train.mkdir()
    with open(train / "next", "rb", 0) as held, contextlib.closing(sqlite3.connect(store)) as connection:
        text = held.read(1)
        for _ in range(3):
            for _ in range(40):
                (train / "next").read_bytes()
            (control,) = mounted.control()
            os.kill(control, signal.SIGKILL)
            wait_until(lambda control=control: mounted.control() not in ([], [control]))
        for _ in range(20):
            (train / "next").read_bytes()
        assert connection.execute("SELECT count(*) FROM open").fetchone()[0] <= 1 + 20
        assert (text + held.read()).endswith(b"monday.wav\n")


@pytest.mark.parametrize("how", ["unmounted", "terminated", "killed"])
def test_after_a_clean_end_only_the_store_and_the_log_are_left(mount, speech, tmp_path, how):
    mounted = mount(speech, "--state-dir", tmp_path / "state", "--workers", 2)
    train = mounted.path / ".touchfs/iterators/train"
    train.mkdir()
    for _ in range(5):
        (train / "next").read_bytes()
    if how == "killed":
        for process in (mounted.workers()[0], *mounted.control()):
            os.kill(process, signal.SIGKILL)
    if how == "terminated":
        os.kill(mounted.pid, signal.SIGTERM)
        wait_until(lambda: not runs(mounted.pid))
    else:
        assert touchfs("umount", mounted.path).returncode == 0
    mounted.end()
    assert sorted(path.suffix for path in (tmp_path / "state").iterdir()) == [".log", ".sqlite"]
    (store,) = (tmp_path / "state").glob("*.sqlite")
    with contextlib.closing(sqlite3.connect(store)) as connection:
        for table in ("mount", "open", "written"):
            assert connection.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)
        assert connection.execute("SELECT steps FROM iterator").fetchone() == (5,)
