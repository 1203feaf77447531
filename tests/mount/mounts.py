"""What the tests of the mount share: mounts made by the real command, their processes, and the dataset in them."""

import errno
import json
import os
import random
import re
import signal
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from command import TOUCHFS, in_one_process
from processes import children, runs
from waiting import wait_until

# The samples of the shard `wide` of the zoo.
WIDE = 400
SPEECH = Path(__file__).parent.parent / "data" / "speech"
# How workers run, by the names of tests.
WAYS: dict[str, tuple[Any, ...]] = {"one-worker": (), "two-workers": ("--workers", 2)}


def ways(first: str = "one-worker", *others: str) -> list[Any]:
    """The parameters of a test: a way to run workers, and as variants other ones, or all."""
    others = others or tuple(way for way in WAYS if way != first)
    return [first, *(pytest.param(way, marks=pytest.mark.variant) for way in others)]


def touchfs(*arguments: Any, **how: Any) -> subprocess.CompletedProcess[str]:
    """Run the command, and return what it wrote and its status."""
    command = [TOUCHFS, *map(str, in_one_process(*arguments))]
    return subprocess.run(command, text=True, capture_output=True, check=False, **how)


def kill_workers_while(
    start: Callable[[], list[subprocess.Popen[str]]],
    mounted: "Mount",
    seed: int,
    count: int = 2,
    *,
    least: int,
    most: int = 12,
) -> list[subprocess.Popen[str]]:
    """Start processes, and kill one that serves now and then when all are there. All of them have ended afterwards.

    On a fast machine they end before many are killed: then others are started, until `least` were. On a busy one a
    worker may be killed before it has done anything, so none would end without `most` for each start.
    """
    dice, kills, ended = random.Random(seed), 0, []
    while kills < least:
        running, left = start(), most
        while any(process.poll() is None for process in running):
            workers, control = mounted.workers(), mounted.control()
            if left and len(workers) == count and control:
                with suppress(ProcessLookupError):  # the one killed before may still be listed
                    os.kill(dice.choice(workers + control), signal.SIGKILL)
                    left -= 1
            with suppress(subprocess.TimeoutExpired):
                running[left % len(running)].wait(0.08 * dice.random())
        kills += most - left
        ended += running
    return ended


def mounts_below(path: Path) -> list[Path]:
    """From mountinfo: a stat would be a request to the mount. Names may have any bytes, also those of line ends."""
    listed = Path("/proc/self/mountinfo").read_text(errors="surrogateescape")
    points = [line.split(" ")[4] for line in listed.split("\n") if line]
    points = [re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), point) for point in points]
    return [Path(point) for point in points if Path(point).is_relative_to(path)]


def is_mounted(path: Path) -> bool:
    return path in mounts_below(path)


def is_waiting(pid: int) -> bool:
    """Whether a process waits in the kernel for an answer of a FUSE daemon, or for a page that one is to fill."""
    return any(name in Path(f"/proc/{pid}/wchan").read_text() for name in ("request_wait", "wait_bit", "wait_on_page"))


class Mount:
    """A mount in the background. It has ended, and so have its processes, when `end` returns."""

    def __init__(self, path: Path, source: Path, *options: Any) -> None:
        self.path = path
        self.source = source
        done = touchfs("mount", source, path, *options)
        assert done.returncode == 0, done.stderr
        shown = str(source).partition("?")[0] if "://" in str(source) else source  # a query may be a signature
        assert done.stdout.startswith(f"{shown} is mounted at {path} ("), done.stdout
        self.pid = self.complete()

    def complete(self) -> int:
        """The process of the daemon, once all of its others are there: it is mounted as soon as one worker serves."""
        told = self.info()
        expected = told["workers"], int((self.path / ".touchfs").is_symlink())
        wait_until(lambda: (len(workers(told["pid"])), len(serving(told["pid"], "touchfs-control"))) == expected)
        return int(told["pid"])

    def info(self) -> dict[str, Any]:
        told: dict[str, Any] = json.loads(os.getxattr(self.path, "user.touchfs.info"))
        return told

    def serving(self) -> list[int]:
        """All processes that answer requests."""
        return serving(self.pid)

    def workers(self) -> list[int]:
        """Those that answer requests for data."""
        return workers(self.pid)

    def control(self) -> list[int]:
        """The one that answers requests for control files, unless it has just ended."""
        return serving(self.pid, "touchfs-control")

    def alone(self) -> list[int]:
        """The one that runs requests with a strike, if there were any."""
        return serving(self.pid, "touchfs-alone")

    def processes(self) -> list[int]:
        """All of the mount, and the programs that work beside it."""
        zygotes = children(self.pid)
        return [self.pid, *zygotes, *(process for zygote in zygotes for process in children(zygote))]

    def crash(self) -> None:
        """Kill all processes, all at rest before: none outlives another one and unmounts."""
        everyone = self.processes()
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in everyone:
                os.kill(pid, number)
        wait_until(lambda: not any(map(runs, everyone)))

    def files(self) -> Iterator[Path]:
        """All data files, each once: without the links in `by-key/`, and the lists in `manifests/`."""
        for directory, directories, names in os.walk(self.path):
            directories[:] = [name for name in directories if name not in (".touchfs", "by-key", "manifests")]
            yield from (Path(directory, name) for name in names)

    def end(self) -> None:
        everyone = self.processes()
        if is_mounted(self.path):
            subprocess.run(["fusermount3", "-u", "-z", self.path], check=True)
        try:
            # A mount namespace that another test has made meanwhile has this mount, too, for as long as it is there.
            with suppress(AssertionError):
                wait_until(lambda: not any(map(runs, everyone)), 5)
            wait_until(lambda: not self._interrupted() and not any(map(runs, everyone)))
        finally:
            for pid in filter(runs, everyone):
                os.kill(pid, signal.SIGKILL)
        assert not is_mounted(self.path)

    def _interrupted(self) -> bool:
        """Whether the daemon runs still. If so, it is interrupted: the second time it waits for nobody."""
        if runs(self.pid):
            os.kill(self.pid, signal.SIGINT)
        return runs(self.pid)


def serving(daemon: int, *names: str) -> list[int]:
    """The processes of a daemon that answer requests: forks of its zygote that have taken their names."""
    names = names or ("touchfs-worker", "touchfs-control", "touchfs-alone")
    found = [process for zygote in children(daemon) for process in children(zygote)]
    return [process for process in found if name_of(process) in names and runs(process)]


def workers(daemon: int) -> list[int]:
    """Those that answer requests for data."""
    return serving(daemon, "touchfs-worker")


def name_of(process: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{process}/comm").read_text().strip()
    return ""


def read_anew(path: Path) -> bytes:
    """Read a file without the pages that the kernel keeps: of a file that was read before it asks nobody."""
    with open(path, "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        return file.read()


def outcome(path: Path, read: Callable[[Path], bytes] = read_anew) -> bytes | str:
    """What a read gives: bytes, or the name of an error."""
    try:
        return read(path)
    except OSError as error:
        return errno.errorcode[error.errno or 0]


def error_of(function: Callable[..., object], *arguments: Any) -> str:
    """The name of the error of a call; "" if it has none."""
    try:
        function(*arguments)
    except OSError as error:
        return errno.errorcode[error.errno or 0]
    return ""


def indexers(mounted: Mount) -> list[int]:
    """The programs that decompress or index in the background."""
    found = []
    for pid in (pid for zygote in children(mounted.pid) for pid in children(zygote)):
        with suppress(OSError):
            if b"touchfs_mount.beside.indexing" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
    return found


def make_iterator(mounted: Mount, spec: str, name: str = "train") -> Path:
    """A new iterator with a spec."""
    path = mounted.path / ".touchfs" / "iterators" / name
    path.mkdir()
    (path / "spec").write_text(spec)
    return path


def said(path: Path, file: str) -> str:
    """What a file of an iterator says."""
    return (path / file).read_text()


def is_stepped(train: Path) -> bool:
    """Whether an iterator can be stepped, and its epoch has not ended."""
    with suppress(OSError):
        return (train / "next").read_text() != ""
    return False


@contextmanager
def reader_of(path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that has a file open and has read a byte of it. It goes on reading when its stdin ends."""
    code = "f = open(sys.argv[1], 'rb', 0); f.read(1); print(flush=True); sys.stdin.read(); print(len(f.read()))"
    command = [sys.executable, "-c", f"import sys; {code}", path]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as reader:
        try:
            assert reader.stdout is not None
            assert reader.stdout.readline() == b"\n"
            yield reader
        finally:
            reader.kill()


def samples_of(shard: Path, modality: str) -> list[bytes]:
    """The samples of a shard's modality, by the layout that TouchNet documents."""
    index, data = (shard / f"{modality}.idx").read_bytes(), (shard / f"{modality}.bin").read_bytes()
    code, count = struct.unpack_from("<BQ", index, 17)
    lengths = struct.unpack_from(f"<{count}i", index, 34)
    offsets = struct.unpack_from(f"<{count}q", index, 34 + 4 * count)
    width = {1: 1, 3: 2, 4: 4, 8: 2}[code]
    return [data[offset : offset + length * width] for offset, length in zip(offsets, lengths, strict=True)]
