"""What the benchmarks share: synthetic shards, mounts of them, and rounds that interleave what is compared."""

import io
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import numpy as np

from touchfs.containers.touchnet.layout import mmidx

TOUCHFS = str(Path(sys.executable).with_name("touchfs"))
# In an environment of its own, which `.ci/setup bench` makes: at its start it imports the clients of all stores that it
# finds, and ours has many.
RATARMOUNT = str(Path(__file__).parents[2] / ".venv-ratarmount" / "bin" / "ratarmount")


def make_shards(directory: Path, shards: int, samples: int, audio_size: int, *, sparse: bool) -> None:
    """TouchNet shards: `samples` in each, of `audio_size` bytes at 16 kHz. Sparse audio reads as zeros."""
    noise = np.random.default_rng(7).integers(-3000, 3000, audio_size // 2, dtype=np.int16).tobytes()
    for shard in range(shards):
        path = directory / f"{shard:09d}"
        path.mkdir(parents=True)
        texts = [
            json.dumps({"key": f"s{shard:05d}-{i:06d}", "txt": "one two three", "sample_rate": 16000})
            for i in range(samples)
        ]
        metainfo = [text.encode() for text in texts]
        (path / "metainfo.bin").write_bytes(b"".join(metainfo))
        with open(path / "audio.bin", "wb") as audio:
            if sparse:
                audio.truncate(samples * audio_size)
            else:
                for i in range(samples):
                    audio.write(i.to_bytes(8, "little") + noise[8:])
        (path / "metainfo.idx").write_bytes(mmidx.build_index(mmidx.DTYPES[1], np.array([len(m) for m in metainfo])))
        (path / "audio.idx").write_bytes(mmidx.build_index(mmidx.DTYPES[3], np.full(samples, audio_size // 2)))


def add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    """Add a member to a tar that is being written."""
    member = tarfile.TarInfo(name)
    member.size = len(data)
    tar.addfile(member, io.BytesIO(data))


def seconds_of(do: Callable[[], object]) -> float:
    """How many seconds a call takes."""
    begin = time.perf_counter()
    do()
    return time.perf_counter() - begin


def resident(path: Path) -> int:
    """How many bytes of a file are in memory."""
    return int(subprocess.check_output(["fincore", "-b", "-n", "-o", "RES", path]))


def processes_below(pid: int) -> Iterator[int]:
    """A process, its children, and theirs."""
    pids = [pid]
    while pids:
        yield (pid := pids.pop(0))
        pids += map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())


def cpu_seconds(pids: list[int]) -> float:
    """The CPU time of processes, with that of threads that have ended. A tick of /proc/PID/stat is 10 ms, so
    this asks for the CPU clock of each process, which counts nanoseconds (clock_getcpuclockid(3)).
    """
    return sum(time.clock_gettime(~pid << 3 | 2) for pid in pids)


@contextmanager
def busy_processors() -> Iterator[None]:
    """A busy loop on each processor."""
    loops = []
    try:
        for processor in sorted(os.sched_getaffinity(0)):
            code = f"import os; os.sched_setaffinity(0, [{processor}])\nwhile True: pass"
            loops.append(subprocess.Popen([sys.executable, "-S", "-c", code]))
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


class Mount:
    """A mount in the foreground, so that its process is ours to look at."""

    def __init__(self, source: Path, where: Path, *options: str) -> None:
        self.path = where
        command = [TOUCHFS, "mount", "-f", source, where, *options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert self.process.stdout is not None
        assert "is mounted" in self.process.stdout.readline()

    def close(self) -> None:
        self.process.terminate()
        self.process.communicate(timeout=60)

    def processes(self) -> Iterator[int]:
        """Of the daemon: supervisor, zygote, workers."""
        return processes_below(self.process.pid)

    def own_memory(self) -> dict[str, float]:
        """RssAnon + RssShmem of each process of the daemon, in MB."""
        found: dict[str, float] = {}
        for pid in self.processes():
            status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
            found[f"{['supervisor', 'zygote', 'worker'][min(len(found), 2)]} {pid}"] = (
                sum(int(status[name].split()[0]) for name in ("RssAnon", "RssShmem")) / 1024
            )
        return found


@contextmanager
def on_one_processor(*pids: int) -> Iterator[None]:
    """Who asks and who answers: neither has to wake up a processor that is halted, as those of an idle machine are."""
    everywhere = os.sched_getaffinity(0)
    try:
        for pid in pids:
            os.sched_setaffinity(pid, {min(everywhere)})
        yield
    finally:
        for pid in pids:
            os.sched_setaffinity(pid, everywhere)


@contextmanager
def mounted(source: Path, where: Path, *options: str) -> Iterator[Mount]:
    mount = Mount(source, where, *options)
    try:
        yield mount
    finally:
        mount.close()


def own_cache_and_state(place: Path) -> None:
    """Indexes and state of this process and its children go below `place`, not to the user's directories."""
    os.environ.update(XDG_CACHE_HOME=str(place / "cache"), XDG_STATE_HOME=str(place / "state"))


def open_read_close(paths: list[str], length: int, count: int, threads: int = 1) -> float:
    """Seconds for `count` times open, read and close of a random file, over all threads."""
    chosen = [[random.choice(paths) for _ in range(count // threads)] for _ in range(threads)]

    def work(mine: list[str]) -> None:
        for path in mine:
            descriptor = os.open(path, os.O_RDONLY)
            os.read(descriptor, length)
            os.close(descriptor)

    with ThreadPoolExecutor(threads) as pool:
        begin = time.perf_counter()
        list(pool.map(work, chosen))  # a list, so that an error of a thread is ours
        return time.perf_counter() - begin


def interleaved(contestants: dict[str, Callable[[], float]], rounds: int) -> dict[str, float]:
    """The median of what each contestant returns, called in turn."""
    results: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, contestant in contestants.items():
            results[name].append(contestant())
    return {name: statistics.median(values) for name, values in results.items()}


def grid(title: str, header: list[str], rows: list[list[str]]) -> None:
    """A table with a header: the first column to the left, all others to the right."""
    print(f"\n## {title}\n")
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    for first, *others in (header, *rows):
        cells = [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
        print("   ".join([first.ljust(widths[0]), *cells]).rstrip())


def report(title: str, rows: list[tuple[str, str, str]]) -> None:
    """A table: what was measured, the result, what was wanted."""
    print(f"\n## {title}\n")
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


_missed: list[str] = []


def at_least(value: float, wanted: float, unit: str = "") -> str:
    return _judged(f"wanted: at least {wanted:,g}{unit}", value >= wanted)


def at_most(value: float, wanted: float, unit: str = "") -> str:
    return _judged(f"wanted: at most {wanted:,g}{unit}", value <= wanted)


def _judged(told: str, is_met: bool) -> str:
    if not is_met:
        _missed.append(told)
    return told if is_met else f"{told}: MISSED"


def run(main: Callable[[], None]) -> NoReturn:
    """The process fails if something wanted was missed."""
    main()
    sys.exit(f"\n{len(_missed)} missed" if _missed else 0)


def machine() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "")
    return f"{os.cpu_count()} cores {model}, Linux {platform.release()}, Python {platform.python_version()}"
