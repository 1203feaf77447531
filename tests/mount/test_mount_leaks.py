"""Mounts and unmounts in each way that a mount can end: nothing of them is left."""

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from command import TOUCHFS
from mounts import Mount, is_mounted, mounts_below, touchfs
from processes import runs
from small_disks import AS_ROOT
from waiting import wait_until

RECORDING = "shards/000000000/talks/monday.wav"


def by_command(mounted: Mount) -> None:
    assert touchfs("umount", mounted.path).returncode == 0


def by_fusermount(mounted: Mount) -> None:
    subprocess.run(["fusermount3", "-u", mounted.path], check=True)


def by_abort(mounted: Mount) -> None:
    assert touchfs("umount", "--abort", mounted.path).returncode == 0


def by_termination(mounted: Mount) -> None:
    os.kill(mounted.pid, signal.SIGTERM)


def by_a_killed_supervisor(mounted: Mount) -> None:
    os.kill(mounted.pid, signal.SIGKILL)


WAYS: list[Callable[[Mount], None]] = [by_command, by_fusermount, by_abort, by_termination, by_a_killed_supervisor]


def processes_of(place: Path) -> set[int]:
    """The processes whose command line has the place in it, and all that the fork server of the commands has forked:
    they have its command line.
    """
    return naming(place) | naming(TOUCHFS.parent)


def naming(place: Path) -> set[int]:
    named, processes = os.fsencode(place), set()
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        try:
            if pid != os.getpid() and named in Path(f"/proc/{pid}/cmdline").read_bytes():
                processes.add(pid)
        except (FileNotFoundError, ProcessLookupError):
            pass
    return processes


@dataclass(frozen=True)
class Left:
    """What there is of mounts below a place: on disk, in the kernel, and in this process."""

    files: set[Path]
    descriptors: set[str]
    mounts: list[Path]
    processes: set[int]

    @classmethod
    def below(cls, place: Path) -> "Left":
        return cls(
            files={path for path in place.rglob("*") if path.suffix not in (".sqlite-wal", ".sqlite-shm")},
            descriptors=set(os.listdir("/proc/self/fd")),
            mounts=mounts_below(place),
            processes=processes_of(place),
        )


@pytest.fixture
def connections(tmp_path) -> Iterator[Path]:
    """The kernel's directory of FUSE connections, which is not mounted everywhere."""
    place = tmp_path.with_name(f"{tmp_path.name}-connections")
    place.mkdir()
    subprocess.run([*AS_ROOT, "mount", "-t", "fusectl", "none", place], check=True)
    yield place
    subprocess.run([*AS_ROOT, "umount", place], check=True)


@pytest.mark.parametrize(
    "count", [7, pytest.param(20, marks=pytest.mark.variant), pytest.param(1000, marks=pytest.mark.soak)]
)
def test_mounts_leave_nothing(speech, tmp_path, monkeypatch, connections, count):
    for name in ("XDG_CACHE_HOME", "XDG_STATE_HOME", "TMPDIR"):
        (tmp_path / name).mkdir()
        monkeypatch.setenv(name, str(tmp_path / name))
    expected, before = None, processes_of(tmp_path)
    after_first: Left | None = None
    for number in range(count):
        mounted = Mount(tmp_path / "mnt", speech, "--workers", 1 + number % 2)
        expected = expected or (mounted.path / RECORDING).read_bytes()
        assert (mounted.path / RECORDING).read_bytes() == expected
        train = mounted.path / ".touchfs/iterators/train"
        if not number:
            train.mkdir()
            (train / "spec").write_text('{"repeat": true}')
        assert (train / "next").read_text().startswith(str(mounted.path))
        of_kernel, processes = connections / str(os.minor(mounted.path.stat().st_dev)), mounted.processes()
        assert of_kernel.exists()
        assert processes_of(tmp_path) >= {*before, *processes}
        WAYS[number % len(WAYS)](mounted)
        wait_until(lambda pids=processes: not any(map(runs, pids)))
        wait_until(lambda: not is_mounted(tmp_path / "mnt"))
        wait_until(lambda: processes_of(tmp_path) == before)  # a fusermount3 has unmounted, and is about to exit
        # Another test may have mounted since: the kernel gives numbers again. Or its mount namespace has this one.
        others = f" 0:{of_kernel.name} ".encode()
        wait_until(lambda: not of_kernel.exists() or others in Path("/proc/self/mountinfo").read_bytes())  # noqa: B023
        if number + 1 == len(WAYS):  # each way has made its files
            after_first = Left.below(tmp_path)
            assert (after_first.mounts, after_first.processes) == ([], before)
            assert list((tmp_path / "TMPDIR").iterdir()) == []
    assert Left.below(tmp_path) == after_first
    assert sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()) < 1_000_000 + 10_000 * count
