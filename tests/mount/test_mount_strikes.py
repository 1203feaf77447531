"""A request that ends the worker that answers it, or hangs there, ends no other one; and no other request fails."""

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
import pytest
from mount_numbers import numbers_of
from mounts import WAYS, Mount, error_of, is_waiting, ways
from slow import Slow, readers, slow
from touchfs_mount.requests.strikes import DEATHS
from waiting import wait_until

from touchfs.containers.touchnet.writer import TouchNetWriter

KEYS = [*(f"s{i}" for i in range(20)), "dies", "slow0", "slow1", "slow2"]
STUCK_SECONDS = 1


def audio_of(key: str) -> bytes:
    return key.encode().ljust(16) * 1000


@pytest.fixture(scope="session")
def lethal(tmp_path_factory) -> Path:
    source = tmp_path_factory.mktemp("lethal")
    for shard in ("good", "deadly"):
        with TouchNetWriter(source / shard, {"audio": np.dtype("<i2"), "metainfo": np.dtype("u1")}) as writer:
            for key in KEYS:
                metainfo = {"key": key, "sample_rate": 16000, "txt": "word"}
                writer.add({"audio": audio_of(key), "metainfo": json.dumps(metainfo).encode()})
    return source


class FatalMount(Mount):
    def __init__(self, path: Path, source: Path, log: Path, *options, **environment) -> None:
        self.log = log
        self.path = path
        command = [sys.executable, Path(__file__).with_name("fatal_daemon.py"), log, "mount", source, path, *options]
        environment = {**os.environ, **environment}
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, env=environment)
        assert done.returncode == 0, done.stderr
        self.pid = self.complete()

    def ran(self, what: str) -> int:
        """How often something was run that ends who runs it, or is slow."""
        return self.log.read_text().count(what) if self.log.exists() else 0

    @contextmanager
    def held(self) -> Iterator[None]:
        """Within this context, nothing that is slow ends."""
        held = self.log.with_name(f"{self.log.name}.held")
        held.touch()
        try:
            yield
        finally:
            held.unlink()

    def errors(self) -> list[str]:
        return (self.path / ".touchfs/errors").read_text().splitlines()

    def check(self, *keys: str) -> None:
        for key in keys:
            assert (self.path / f"shards/good/{key}.wav").read_bytes()[44:] == audio_of(key)


@pytest.fixture
def fatal(lethal, tmp_path) -> Iterator[Callable[..., FatalMount]]:
    mounts: list[FatalMount] = []

    def make(*options, **environment) -> FatalMount:
        mounts.append(FatalMount(tmp_path / "mnt", lethal, tmp_path / "fatal.log", *options, **environment))
        return mounts[-1]

    yield make
    for each in mounts:
        each.end()


def test_a_control_request_that_kills_is_refused_and_told(fatal):
    mounted = fatal()
    assert error_of((mounted.path / ".touchfs/iterators/deadly").mkdir) == "EIO"
    assert mounted.ran("deadly iterator") == DEATHS
    (line,) = mounted.errors()
    assert line.endswith(": it kills each process that serves it: refused for a minute")
    mounted.check("s0")


@pytest.mark.parametrize("way", ways("two-workers"))
def test_a_request_that_kills_is_an_error_after_one_worker(fatal, way):
    mounted = fatal(*WAYS[way])
    mounted.check("s0", "s1")
    others = len(mounted.workers())
    with ThreadPoolExecutor(4) as threads:
        reading = [threads.submit(mounted.check, *KEYS[:20]) for _ in range(3)]
        assert error_of(lambda: os.listdir(mounted.path / "shards/deadly")) == "EIO"
        assert [read.result() for read in reading] == [None] * 3
    assert mounted.ran("deadly") == 1 + DEATHS, "in a worker, and alone"
    assert mounted.errors()[0].endswith(": it kills each process that serves it: refused for a minute")
    assert error_of(lambda: os.listdir(mounted.path / "shards/deadly")) == "EIO"
    assert mounted.ran("deadly") == 1 + DEATHS
    assert error_of((mounted.path / "shards/good/dies.wav").read_bytes) == "EIO"
    assert mounted.ran("dies") == 1 + DEATHS
    # Each worker that refuses a request says so once.
    assert len({line.partition(" ")[2] for line in mounted.errors()}) == 2
    assert (mounted.path / "shards/deadly/s3.wav").read_bytes()[44:] == audio_of("s3")
    wait_until(lambda: len(mounted.workers()) == others)
    assert mounted.info()["internal_errors"] == 0


@pytest.mark.parametrize("way", ways("one-worker", "two-workers"))
def test_a_request_that_is_stuck_is_an_error_after_one_worker(fatal, way):
    # A busy machine may hold up the other worker for a second.
    mounted = fatal("--stuck-seconds", 2, *WAYS[way])
    assert error_of((mounted.path / "shards/good/stuck.wav").stat) == "EIO"
    assert mounted.ran("stuck") == 1 + DEATHS
    mounted.check(*KEYS[:20])
    assert error_of((mounted.path / "shards/good/stuck.wav").stat) == "EIO"
    assert mounted.ran("stuck") == 1 + DEATHS


@pytest.mark.parametrize("way", ways())
def test_what_ran_in_a_worker_that_somebody_killed_is_answered(fatal, way):
    """Anybody may kill a process: that is no reason to blame a request."""
    mounted = fatal(*WAYS[way])
    slow = [f"slow{i}" for i in range(3)]
    with ThreadPoolExecutor(3) as threads:
        with mounted.held():
            reading = [threads.submit(mounted.check, key) for key in slow]
            wait_until(lambda: mounted.ran("slow") >= 3)
            for worker in mounted.workers():
                os.kill(worker, signal.SIGKILL)
            wait_until(lambda: mounted.ran("slow") >= 6)
        assert [read.result(60) for read in reading] == [None] * 3
    assert numbers_of(mounted).total("strikes") == 0
    assert mounted.alone() == mounted.errors() == []


def test_what_ran_in_a_worker_that_crashed_is_answered_and_loses_its_strike(fatal):
    """One of the requests was to blame. The others run beside each other, however long they take."""
    mounted = fatal("--workers", 2)
    slow = [f"slow{i}" for i in range(3)]
    with ThreadPoolExecutor(3) as threads:
        with mounted.held():
            reading = [threads.submit(mounted.check, key) for key in slow]
            wait_until(lambda: mounted.ran("slow") >= 3)
            workers = mounted.workers()
            for number in (signal.SIGSTOP, signal.SIGABRT, signal.SIGCONT):  # or one may get what the other one ran
                for worker in workers:
                    os.kill(worker, number)
            wait_until(lambda: mounted.ran("slow") >= 6)
        assert [read.result(60) for read in reading] == [None] * 3
    assert numbers_of(mounted).total("strikes") == 3
    assert len(mounted.alone()) == 1
    assert mounted.errors() == []
    ran = mounted.ran("slow")
    with ThreadPoolExecutor(3) as threads:
        list(threads.map(mounted.check, slow))
    assert mounted.ran("slow") == ran, "they were kept"


@pytest.fixture
def waiting(mount, lethal, tmp_path) -> Iterator[tuple[Mount, Slow]]:
    """A mount of shards on a file system that can be made to hang. It has read from it."""
    with slow(lethal, tmp_path / "slow") as files:
        mounted = mount(files.path, "--stuck-seconds", STUCK_SECONDS)
        assert (mounted.path / "shards/good/s0.wav").read_bytes()[44:] == audio_of("s0")
        yield mounted, files


@pytest.mark.parametrize("number", [signal.SIGABRT, signal.SIGKILL])
def test_what_waits_for_a_file_is_not_stuck(waiting, number):
    """Nor is it after its worker has died."""
    mounted, files = waiting
    files.hang()
    path = mounted.path / "shards/good/s1.wav"
    with readers(files, path) as (reading,):
        wait_until(lambda: is_waiting(reading.pid))
        (worker,) = mounted.workers()
        os.kill(worker, number)
        wait_until(lambda: mounted.workers() not in ([], [worker]))
        time.sleep(4 * STUCK_SECONDS)
        assert reading.poll() is None
        files.go_on()
        data, _ = reading.communicate(timeout=60)
        assert data[44:] == audio_of("s1")
    assert (mounted.path / ".touchfs/errors").read_text() == ""


def test_a_step_that_waits_for_the_store_is_not_stuck(mount, lethal, tmp_path):
    mounted = mount(lethal, "--stuck-seconds", STUCK_SECONDS, "--state-dir", tmp_path / "state")
    train = mounted.path / ".touchfs/iterators/train"
    train.mkdir()
    (train / "spec").write_text('{"output": "key"}')
    (store,) = (tmp_path / "state").glob("*.sqlite")
    taker: list[int] = []

    def take() -> str:
        taker.append(threading.get_native_id())
        return (train / "next").read_text()

    with ThreadPoolExecutor(1) as threads:
        with closing(sqlite3.connect(store, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            step = threads.submit(take)
            wait_until(lambda: taker and is_waiting(taker[0]))
            (control,) = mounted.control()
            os.kill(control, signal.SIGKILL)
            wait_until(lambda: mounted.control() not in ([], [control]))
            time.sleep(2 * STUCK_SECONDS)
            assert not step.done()
            connection.execute("ROLLBACK")
        assert step.result(60) == "s0\n"
    assert (train / "next").read_text() == "s1\n"
    assert (mounted.path / ".touchfs/errors").read_text() == ""


READER = """
import os, sys
from pathlib import Path
shard, keys, stop = Path(sys.argv[1]), sys.argv[2].split(), Path(sys.argv[3])
done = 0
while not stop.exists() or not done:
    for key in keys:
        data = (shard / f"{key}.wav").read_bytes()
        assert data[44:] == key.encode().ljust(16) * 1000, key
    assert len(os.listdir(shard)) == 3 * int(sys.argv[4])
    done += 1
print(done)
"""


@pytest.mark.parametrize(
    ("way", "count", "wanted"),
    [
        ("two-workers", 4, 12),
        pytest.param("one-worker", 4, 12, marks=pytest.mark.variant),
        *(pytest.param(way, 16, 60, marks=pytest.mark.variant) for way in ("one-worker", "two-workers")),
        *(pytest.param(way, 16, 1000, marks=pytest.mark.soak) for way in ("one-worker", "two-workers")),
    ],
)
def test_no_reader_notices_that_workers_are_killed_and_their_successors_at_once(
    mount, lethal, tmp_path, way, count, wanted
):
    mounted = mount(lethal, *WAYS[way])
    stop, dice = tmp_path / "stop", random.Random(1)
    command = [sys.executable, "-c", READER, mounted.path / "shards/good", " ".join(KEYS[:20]), stop, str(len(KEYS))]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    running = [subprocess.Popen(command, **pipes) for _ in range(count)]
    kills = 0
    while kills < wanted:
        time.sleep(dice.uniform(0.01, 0.1))
        before = wait_until(mounted.serving)
        killed = dice.choice(before)
        kills += kill(killed)
        wait_until(lambda killed=killed: killed not in mounted.serving())
        time.sleep(dice.uniform(0, 0.02))
        kills += sum(map(kill, mounted.serving()))
    stop.touch()
    told = [process.communicate(timeout=60) for process in running]
    assert [errors for _, errors in told] == [""] * count
    assert all(int(done) > 0 for done, _ in told), told
    assert mounted.info()["internal_errors"] == 0
    assert (mounted.path / ".touchfs/errors").read_text() == ""


def kill(worker: int) -> bool:
    try:
        os.kill(worker, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def test_a_machine_without_room_for_a_worker_keeps_its_mount(fatal, tmp_path):
    """A worker that is killed is forked when there is room again. Who reads meanwhile waits."""
    full, log = tmp_path / "full", tmp_path / "log"
    mounted = fatal("--log-file", log, FULL=str(full))
    full.touch()
    for worker in mounted.workers():
        os.kill(worker, signal.SIGKILL)
    with ThreadPoolExecutor(1) as reader:
        reading = reader.submit(mounted.check, "s1")
        wait_until(lambda: "cannot be forked: [Errno 11]" in log.read_text())
        full.unlink()
        reading.result(60)
    assert log.read_text().count("cannot be forked") == 1


def test_a_machine_without_room_for_a_thread_ends_no_worker(fatal, tmp_path):
    """What needs one waits for one of those that there are."""
    full = tmp_path / "full"
    mounted = fatal("--workers", 1, FULL=str(full))
    workers = mounted.workers()
    mounted.check("slow0")  # in a thread, which stays
    full.touch()
    with ThreadPoolExecutor(3) as threads:
        list(threads.map(mounted.check, ["slow1", "slow2", "s1"]))
    full.unlink()
    mounted.check("s0")
    assert mounted.workers() == workers
    assert mounted.errors() == []
