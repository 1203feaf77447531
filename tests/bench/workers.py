"""What a second process brings and costs, on this machine.

A worker of a mount decodes recordings in up to two child processes (`touchfs/media/decoder/pool.py`), so decoding needs
no second worker. Slices of 5 s of a FLAC recording of 48 kHz are read by four threads from a pool of one child and of
two, in turn. What the readers use of the same processors is not there for the children, so the table has the rate, and
the rate with processors to themselves: divided by the part of them that the readers leave.

And segments and steps of an iterator from mounts with one and with two workers.
"""

import io
import json
import os
import resource
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from statistics import median

import numpy as np
import soundfile
from harness import TOUCHFS, Mount, add, at_least, mounted, own_cache_and_state, report, run

from touchfs.core.extent import Content, Memory
from touchfs.media.decoder.pool import DecodePool
from touchfs.media.slices.media_info import MediaInfo
from touchfs.media.slices.probe import probe
from touchfs.media.slices.read_slice import read_slice

RATE, MINUTES, SECONDS = 48000, 10, 5
SEGMENTS, READERS, STEPS, ROUNDS = 120, 4, 1000, 5
RAM_DISK = "/dev/shm"


def make_recording() -> bytes:
    """Bursts of tones and noise."""
    time_ = np.arange(60 * RATE) / RATE
    noise = np.random.default_rng(1).normal(0, 0.1, len(time_))
    minute = np.clip(np.sin(2 * np.pi * 1.3 * time_), 0, 1) * (0.4 * np.sin(2 * np.pi * 220 * time_) + 0.3 * noise)
    recording = io.BytesIO()
    soundfile.write(recording, np.tile(minute, MINUTES), RATE, "PCM_16", format="FLAC")
    return recording.getvalue()


def make_tar(path: Path, recording: bytes) -> None:
    """The recording with segments that overlap."""
    step = (60 * MINUTES - SECONDS) / (SEGMENTS * ROUNDS)
    segments = [{"start": i * step, "end": i * step + SECONDS} for i in range(SEGMENTS * ROUNDS)]
    with tarfile.open(path, "w") as tar:
        for name, data in {
            "a.flac": recording,
            "a.json": json.dumps({"segments": segments}).encode(),
        }.items():
            add(tar, name, data)


def decoding(content: Content, info: MediaInfo, pool: DecodePool, children: int) -> tuple[float, float]:
    """Slices a second, and slices a second with processors that the readers do not use."""

    def read(reader: int) -> None:
        for i in range(reader, SEGMENTS, READERS):
            assert len(read_slice(content, info, i * RATE, SECONDS * RATE, pool).samples) == SECONDS * RATE

    with ThreadPoolExecutor(READERS) as threads:
        before, begin = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
        list(threads.map(read, range(READERS)))
        wall, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_SELF)
    readers = (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / wall
    left = min(children, len(os.sched_getaffinity(0)) - readers)
    return SEGMENTS / wall, SEGMENTS / wall / left * children


def reading(paths: list[Path]) -> float:
    """Files a second, by all readers."""

    def read(mine: list[Path]) -> None:
        for path in mine:
            assert len(path.read_bytes()) == 44 + 2 * SECONDS * RATE

    with ThreadPoolExecutor(READERS) as threads:
        begin = time.perf_counter()
        list(threads.map(read, [paths[i::READERS] for i in range(READERS)]))
        return len(paths) / (time.perf_counter() - begin)


def stepping(mount: Mount) -> Callable[[], float]:
    path = mount.path / ".touchfs/iterators/bench"
    path.mkdir()

    def steps() -> float:
        begin = time.perf_counter()
        for _ in range(STEPS):
            (path / "next").read_bytes()
        return STEPS / (time.perf_counter() - begin)

    return steps


def pools(recording: bytes) -> None:
    """One decoding process and two."""
    content = Memory(recording)
    results: dict[int, list[tuple[float, float]]] = {1: [], 2: []}
    with DecodePool(children=1) as one, DecodePool(children=2) as two:
        info = probe(content, one)
        for _ in range(ROUNDS + 1):  # the first one starts the processes
            for children, pool in ((1, one), (2, two)):
                results[children].append(decoding(content, info, pool, children))
    (rate_1, alone_1), (rate_2, alone_2) = ([median(c) for c in zip(*results[n][1:], strict=True)] for n in (1, 2))
    report(
        f"Slices of {SECONDS} s of FLAC, read by {READERS} threads",
        [
            ("one decoding process", f"{rate_1:,.0f}/s, with processors to itself {alone_1:,.0f}/s", ""),
            (
                "two",
                f"{rate_2:,.0f}/s, {rate_2 / rate_1:.2f}x; to themselves {alone_2:,.0f}/s, {alone_2 / alone_1:.2f}x",
                at_least(alone_2 / alone_1, 1.6, "x"),
            ),
        ],
    )


def mounts(root: Path) -> None:
    """One worker and two, each with a scratch store and a state of its own."""
    with ExitStack() as stack:
        by_workers = {}
        for workers in (1, 2):
            os.environ["TOUCHFS_SCRATCH_DIR"] = str(root / f"scratch-{workers}")
            options = ("--workers", str(workers), "--state-dir", str(root / f"state-{workers}"))
            by_workers[workers] = stack.enter_context(mounted(root / "talks.tar", root / f"mnt-{workers}", *options))
        steps = {workers: stepping(mount) for workers, mount in by_workers.items()}
        found: dict[int, list[tuple[float, float]]] = {1: [], 2: []}
        for number in range(ROUNDS):
            names = range(number * SEGMENTS, (number + 1) * SEGMENTS)
            for workers, mount in by_workers.items():
                rate = reading([mount.path / f"segments/talks/a/{i:04d}.wav" for i in names])
                found[workers].append((rate, steps[workers]()))
    medians = {workers: [median(column) for column in zip(*rows, strict=True)] for workers, rows in found.items()}
    report(
        "Mounts with one worker and with two",
        [
            (f"--workers {n}, {what}", f"{medians[n][i]:,.0f}/s, {medians[n][i] / medians[1][i]:.2f}x", "")
            for i, what in enumerate(("segments read for the first time", "steps of an iterator"))
            for n in medians
        ],
    )


def main() -> None:
    with tempfile.TemporaryDirectory(dir=RAM_DISK) as temporary:
        root = Path(temporary)
        own_cache_and_state(root)
        recording = make_recording()
        pools(recording)
        make_tar(root / "talks.tar", recording)
        subprocess.run([TOUCHFS, "index", root / "talks.tar"], check=True, stdout=subprocess.DEVNULL)
        mounts(root)


if __name__ == "__main__":
    run(main)
