"""The state store is held by somebody else: data is served as ever, by workers that start meanwhile too."""

import os
import signal
import sqlite3
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from touchnet import UINT8, write_modality
from waiting import wait_until

COUNT = 400


def line(number: int) -> bytes:
    """With a segment, so that there is `merged/`."""
    return b'{"key": "n%d", "segments": [{"start": 0, "end": 1}]}' % number


@pytest.fixture(scope="module")
def numbers(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("numbers") / "shards"
    write_modality(path / "0", "metainfo", UINT8, [*map(line, range(COUNT))])
    return path


@contextmanager
def locked(state: Path) -> Iterator[None]:
    """Until the end, the store can be read and not changed."""
    (path,) = state.glob("*.sqlite")
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("COMMIT")


def read_data(mounted, count: int = COUNT) -> None:
    for number in range(count):
        assert (mounted.path / f"shards/0/n{number}.json").read_bytes() == line(number)


def test_any_number_of_steps_that_wait_leave_data_alone(mount, numbers, tmp_path):
    mounted = mount(numbers, "--state-dir", tmp_path / "state")
    train = mounted.path / ".touchfs/iterators/train"
    train.mkdir()
    (train / "spec").write_text('{"shuffle": 7, "output": "key"}')
    workers, readers = mounted.workers(), 150
    with ThreadPoolExecutor(readers) as threads:
        with locked(tmp_path / "state"):
            steps = [threads.submit((train / "next").read_text) for _ in range(readers)]
            before = mounted.info()["requests"]
            wait_until(lambda: mounted.info()["requests"] > before + readers)
            read_data(mounted)
            assert mounted.info()["samples"] == COUNT
            assert (train / "position").read_text() == "0\n"
            assert (train / "peek").read_text() != ""
            assert "train" in os.listdir(train.parent)
            assert not any(step.done() for step in steps)
        keys = [step.result() for step in steps]
    assert len(set(keys)) == readers
    assert (train / "position").read_text() == f"{readers}\n"
    assert mounted.workers() == workers
    assert mounted.info()["internal_errors"] == 0


@pytest.mark.parametrize("workers", [2, pytest.param(1, marks=pytest.mark.variant)])
def test_a_worker_that_starts_meanwhile_serves_data_and_is_not_taken_for_stuck(mount, numbers, tmp_path, workers):
    stuck_seconds = 1
    mounted = mount(numbers, "--state-dir", tmp_path / "state", "--workers", workers, "--stuck-seconds", stuck_seconds)
    train = mounted.path / ".touchfs/iterators/train"
    train.mkdir()
    before = mounted.workers()
    plan = mounted.path / "merged" / "max=30"
    assert plan.is_dir()
    with ThreadPoolExecutor(1) as threads:
        with locked(tmp_path / "state"):
            for worker in before:
                os.kill(worker, signal.SIGKILL)
            wait_until(lambda: len(mounted.workers()) == workers and not set(mounted.workers()) & set(before))
            started = mounted.workers()
            step = threads.submit((train / "next").read_text)
            until = time.monotonic() + 2 * stuck_seconds
            while time.monotonic() < until:
                read_data(mounted, 20)
                assert plan.is_dir() and os.listdir(plan) == ["0"]
                assert mounted.info()["samples"] == COUNT
            assert not step.done()
            assert mounted.workers() == started
        assert step.result().endswith("n0.json\n")
