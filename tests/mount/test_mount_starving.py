"""A machine short of processes, threads, descriptors and memory: a request gets an errno, and the mount stays."""

import mmap
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from command import INSTALLED
from mounts import Mount
from tars import write_tar
from waiting import wait_until

HERE = Path(__file__).parent
FILES = {f"s{number:03}.bin": random.Random(number).randbytes(20_000) for number in range(200)}
# Reads one file after the other. An errno is no fault, other bytes are.
READER = """
import os, random, sys
from pathlib import Path
root, stop, seed = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
dice, done, failed = random.Random(seed), 0, 0
while not stop.exists() or done < 10:
    number = dice.randrange(200)
    path = root / f"shards/{dice.choice('abcd')}/s{number:03}.bin"
    try:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            data = b"".join(iter(lambda: os.read(descriptor, 1 << 20), b""))
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)
        assert data == random.Random(number).randbytes(20_000), path
        done += 1
    except OSError:
        failed += 1
print(done, failed)
"""
# Steps, and prints what it was given.
STEPPER = """
import sys
from pathlib import Path
train, stop, failed = Path(sys.argv[1]) / ".touchfs/iterators/train", Path(sys.argv[2]), 0
while not stop.exists():
    try:
        print((train / "next").read_text().strip(), flush=True)
    except OSError:
        failed += 1
"""


def fail(rate: Path, thousandths: int) -> None:
    """In place: the processes have mapped the file."""
    with rate.open("r+b") as file:
        file.write(thousandths.to_bytes(4, "little"))


def has_stepped(path: Path) -> bool:
    with suppress(OSError):
        return path.read_text() != ""
    return False


def reads_right(path: Path) -> bool:
    with suppress(OSError):
        return path.read_bytes() == FILES[path.name]
    return False


@pytest.fixture(scope="module")
def library(tmp_path_factory) -> Path:
    """The library that makes calls fail."""
    built = tmp_path_factory.mktemp("starving") / "starving.so"
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", built, HERE / "starving.c", "-ldl"], check=True)
    return built


@pytest.mark.parametrize(
    "seconds", [1, pytest.param(10, marks=pytest.mark.variant), pytest.param(1800, marks=pytest.mark.soak)]
)
def test_the_mount_stays_and_no_byte_is_wrong(library, tmp_path, monkeypatch, seconds):
    for shard in "abcd":
        write_tar(tmp_path / "shards" / f"{shard}.tar", FILES)
    rate = tmp_path / "rate"
    rate.write_bytes(bytes(mmap.PAGESIZE))
    monkeypatch.setattr("mounts.TOUCHFS", INSTALLED)  # a fork server has our libraries already
    monkeypatch.setenv("STARVING", str(rate))
    monkeypatch.setenv("LD_PRELOAD", str(library))
    mounted = Mount(tmp_path / "mnt", tmp_path / "shards", "--workers", 2, "--log-file", tmp_path / "log")
    monkeypatch.undo()
    readers: list[subprocess.Popen[str]] = []
    try:
        train = mounted.path / ".touchfs/iterators/train"
        train.mkdir()
        (train / "spec").write_text('{"output": "key", "repeat": true}')
        stop = tmp_path / "stop"
        readers = [
            subprocess.Popen(
                [sys.executable, "-c", code, mounted.path, stop, str(seed)], stdout=subprocess.PIPE, text=True
            )
            for seed, code in enumerate([READER] * 4 + [STEPPER])
        ]
        dice, kills = random.Random(seconds), 0
        fail(rate, 100)
        until = time.monotonic() + seconds
        while time.monotonic() < until or kills <= seconds:
            time.sleep(dice.uniform(0.05, 0.5))
            if serving := mounted.serving():
                with suppress(ProcessLookupError):
                    os.kill(dice.choice(serving), signal.SIGKILL)
                    kills += 1
        fail(rate, 0)
        wait_until(lambda: len(mounted.workers()) == 2 and len(mounted.control()) == 1)
        # Threads and connections are tried again after a second.
        wait_until(lambda: reads_right(mounted.path / "shards/a/s000.bin"))
        wait_until(lambda: has_stepped(train / "next"))
        stop.touch()
        *told, steps = [reader.communicate(timeout=60)[0] for reader in readers]
        assert [reader.returncode for reader in readers] == [0] * len(readers)
        print(told, len(steps.split()), kills)
    finally:
        fail(rate, 0)
        for reader in readers:
            reader.kill()
        mounted.end()
