"""The daemon's promise, on a synthetic file system: workers die at random moments, and no reader notices.

`TOUCHFS_KILLS` sets how many workers are killed over all cases (`make soak`: 1,000).
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from spike_daemon import ROWS

HERE = Path(__file__).parent
KILLS = int(os.environ.get("TOUCHFS_KILLS", "100"))


def children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def workers_of(supervisor: int) -> list[int]:
    return [worker for zygote in children(supervisor) for worker in children(zygote)]


class Mount:
    """A running spike; leaves neither mount nor process behind."""

    def __init__(self, tmp_path: Path, workers: int, loop: str) -> None:
        self.path = tmp_path / "mnt"
        command = [sys.executable, HERE / "spike_daemon.py", self.path, tmp_path, str(workers), loop]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"

    def __enter__(self) -> "Mount":
        return self

    def __exit__(self, *exception: object) -> None:
        if self.process.poll() is None:
            self.process.terminate()
        self.process.communicate(timeout=30)
        assert not os.path.ismount(self.path)


@pytest.fixture
def mounted(tmp_path):
    mounts = []

    def mount(workers: int = 1, loop: str = "own") -> Mount:
        mounts.append(Mount(tmp_path, workers, loop).__enter__())
        return mounts[-1]

    yield mount
    for each in mounts:
        each.__exit__()


@pytest.mark.parametrize("workers", [1, 2])
def test_killed_workers_cost_nobody_an_error(mounted, tmp_path, workers):
    mount = mounted(workers)
    stop = tmp_path / "stop"
    roles = ["compare"] * 3 + ["step"] * 2 + ["list"]
    readers = [
        subprocess.Popen(
            [sys.executable, HERE / "spike_reader.py", role, mount.path, stop, str(seed)],
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed, role in enumerate(roles)
    ]
    choose = random.Random(workers)
    killed = 0
    while killed < KILLS // 2:
        time.sleep(choose.uniform(0.005, 0.08))
        assert mount.process.poll() is None
        if alive := workers_of(mount.process.pid):
            os.kill(choose.choice(alive), signal.SIGKILL)
            killed += 1
    time.sleep(0.5)
    stop.touch()
    reports = [json.loads(reader.communicate(timeout=60)[0]) for reader in readers]
    assert [report["wrong"] for report in reports if report["wrong"]] == []
    assert all(report["done"] > 10 for report in reports), reports
    steps = sorted(step for report in reports for step in report["steps"])
    assert steps == list(range(1, len(steps) + 1))


def test_a_million_rows_are_listed_once_each(mounted):
    mount = mounted()
    with os.scandir(mount.path / "data") as entries:
        assert all(entry.name == f"{row:07d}" for row, entry in enumerate(entries))
    assert len(os.listdir(mount.path / "data")) == ROWS


def test_a_reader_blocked_in_a_killed_worker_just_goes_on(mounted):
    mount = mounted()
    (worker,) = workers_of(mount.process.pid)
    os.kill(worker, signal.SIGSTOP)
    reader = subprocess.Popen(["cat", mount.path / "data" / "0000005"], stdout=subprocess.PIPE)
    time.sleep(0.3)
    assert reader.poll() is None
    os.kill(worker, signal.SIGKILL)
    data, _ = reader.communicate(timeout=20)
    assert data.startswith(b"00050000")
    assert reader.returncode == 0


def test_the_trio_loop_serves_the_same_bytes(mounted, tmp_path):
    mount = mounted(loop="trio")
    stop = tmp_path / "stop"
    command = [sys.executable, HERE / "spike_reader.py", "compare", mount.path, stop, "1"]
    reader = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    time.sleep(1)
    stop.touch()
    report = json.loads(reader.communicate(timeout=60)[0])
    assert report["wrong"] is None
    assert report["done"] > 10


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_unmounts_and_ends_with_status_zero(mounted, number):
    mount = mounted()
    mount.process.send_signal(number)
    assert mount.process.wait(20) == 0
    assert not os.path.ismount(mount.path)


def test_an_unmount_from_outside_ends_the_daemon_with_status_zero(mounted):
    mount = mounted()
    subprocess.run(["fusermount3", "-u", mount.path], check=True)
    assert mount.process.wait(20) == 0


def test_a_killed_supervisor_leaves_no_mount_behind(mounted):
    mount = mounted(2)
    everyone = [mount.process.pid, *children(mount.process.pid), *workers_of(mount.process.pid)]
    assert len(everyone) == 4
    mount.process.kill()
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and (os.path.ismount(mount.path) or any(map(_runs, everyone))):
        time.sleep(0.05)
    assert not os.path.ismount(mount.path)
    assert not any(map(_runs, everyone[1:]))


def test_a_killed_zygote_ends_the_mount_with_status_one(mounted):
    mount = mounted()
    (zygote,) = children(mount.process.pid)
    os.kill(zygote, signal.SIGKILL)
    assert mount.process.wait(20) == 1
    assert not os.path.ismount(mount.path)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
