"""What only a synthetic file system shows of the daemon: no resends, late replies, and how its processes end."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from mounts import is_waiting, serving, workers
from processes import children, runs
from spike_daemon import bytes_of, size_of
from waiting import wait_until


class SpikeMount:
    """A running spike, which is ready."""

    def __init__(self, tmp_path: Path, count: int, *more: str) -> None:
        self.path, self.log = tmp_path / "mnt", tmp_path / "log"
        daemon = Path(__file__).with_name("spike_daemon.py")
        command = [sys.executable, daemon, self.path, tmp_path, str(count), *more]
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        assert self.process.stdout.readline() == "ready\n"
        wait_until(lambda: len(self.workers()) == count)

    def workers(self) -> list[int]:
        return workers(self.process.pid)


@pytest.fixture
def mounted(tmp_path):
    """Starts a spike. It leaves neither mount nor process behind."""
    mounts = []

    def mount(count: int = 1, *more: str) -> SpikeMount:
        mounts.append(SpikeMount(tmp_path, count, *more))
        return mounts[-1]

    yield mount
    for each in mounts:
        if each.process.poll() is None:
            each.process.terminate()
        each.process.communicate(timeout=60)
        assert not os.path.ismount(each.path)


@pytest.mark.parametrize("rows", [20_000, pytest.param(1_000_000, marks=pytest.mark.soak)])
def test_many_rows_are_listed_once_each(mounted, monkeypatch, rows):
    monkeypatch.setenv("SPIKE_ROWS", str(rows))
    mount = mounted()
    with os.scandir(mount.path / "data") as entries:
        assert all(entry.name == f"{row:07d}" for row, entry in enumerate(entries))
    assert len(os.listdir(mount.path / "data")) == rows


def test_a_reader_blocked_in_a_killed_worker_just_goes_on(mounted):
    mount = mounted()
    (worker,) = mount.workers()
    os.kill(worker, signal.SIGSTOP)
    reader = subprocess.Popen(["cat", mount.path / "data" / "0000005"], stdout=subprocess.PIPE)
    wait_until(lambda: is_waiting(reader.pid))
    os.kill(worker, signal.SIGKILL)
    data, _ = reader.communicate(timeout=60)
    assert data.startswith(b"00050000")
    assert reader.returncode == 0


def test_without_resend_a_reader_in_a_killed_worker_gets_an_error(mounted):
    """On kernels before 6.9: not at the end of time, but at once; and the next one is served. For a read through its
    cache the kernel itself asks once more.
    """
    mount = mounted(1, "no-resend")
    (worker,) = mount.workers()
    direct = ["dd", f"if={mount.path}/slow-1000000", "iflag=direct", "bs=4096"]
    with subprocess.Popen(direct, stderr=subprocess.PIPE, text=True) as reader:
        wait_until(lambda: threads_of(worker) > 1)
        os.kill(worker, signal.SIGKILL)
        _, told = reader.communicate(timeout=60)
    assert (reader.returncode, "connection abort" in told) == (1, True), told
    wait_until(lambda: mount.workers() not in ([], [worker]))
    assert (mount.path / "data" / "0000005").read_bytes() == bytes_of(5, 0, size_of(5))


def test_a_reply_that_comes_late_is_no_error(mounted, tmp_path):
    """A request parked in a live worker is sent again when another one dies: one of its two answers is not wanted."""
    mount = mounted(2)
    with subprocess.Popen(["cat", mount.path / "slow-1000000"], stdout=subprocess.PIPE) as reader:
        parked = wait_until(lambda: [pid for pid in mount.workers() if threads_of(pid) > 1])
        for pid in set(mount.workers()) - set(parked):
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: sum(threads_of(pid) - 1 for pid in mount.workers()) == 2)  # it runs twice
        (tmp_path / "go-on").touch()
        assert reader.communicate(timeout=60) == (b"slow\n", None)
    wait_until(lambda: int((mount.path / ".touchfs" / "late").read_text()) > 0)
    assert "fuse_reply" not in mount.log.read_text()


def threads_of(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/task"))


def test_a_killed_supervisor_leaves_no_mount_behind(mounted):
    mount = mounted(2)
    wait_until(lambda: len(mount.workers()) == 2)  # it is ready as soon as one of them serves
    everyone = [mount.process.pid, *children(mount.process.pid), *serving(mount.process.pid)]
    mount.process.kill()
    wait_until(lambda: not os.path.ismount(mount.path))
    wait_until(lambda: not any(map(runs, everyone)))


def test_a_killed_zygote_ends_the_mount_with_status_one(mounted):
    mount = mounted()
    (zygote,) = children(mount.process.pid)
    os.kill(zygote, signal.SIGKILL)
    assert mount.process.wait(60) == 1
    assert not os.path.ismount(mount.path)
