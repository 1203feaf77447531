"""When a worker spins: in a process of its own, beside busy loops or on one processor."""

import math
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from touchfs_mount.loop.spinning import Spinning
from waiting import wait_until


class Polls:
    """Counts how often it is polled, and has an event for the polls with these numbers."""

    def __init__(self, *successful: int) -> None:
        self.count = 0
        self._successful = successful

    def poll(self, timeout: int) -> list[tuple[int, int]]:
        assert timeout == 0
        self.count += 1
        return [(0, select.POLLIN)] if self.count in self._successful else []


def busy_until(condition, seconds=60):
    """As `wait_until`, without ever sleeping."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "in vain"


@pytest.fixture
def spinning() -> Iterator[Spinning]:
    spinning = Spinning()
    yield spinning
    spinning.close()


@pytest.fixture
def with_room(spinning) -> Spinning:
    """It takes no samples of this machine, which may be busy."""
    spinning.sample_at = math.inf
    spinning.has_room = True
    return spinning


@pytest.mark.parametrize("readers", [1, *(pytest.param(each, marks=pytest.mark.variant) for each in (0, 4))])
def test_not_beside_busy_loops(spinning, readers):
    with ExitStack() as stack:
        for _ in range(2 * (os.cpu_count() or 1) + readers):
            loop = stack.enter_context(subprocess.Popen([sys.executable, "-c", "while True: pass"]))
            stack.callback(loop.kill)

        def is_full() -> bool:
            spinning.poll(Polls(), readers)
            return not spinning.has_room

        wait_until(is_full)
        polls = Polls(1)
        assert spinning.poll(polls, readers) == []
        assert polls.count == 0


def test_not_on_one_processor():
    """Affinity belongs to a thread."""
    found: list[bool] = []

    def work() -> None:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        spinning = Spinning()
        spinning.poll(Polls(), 1)
        found.append(spinning.has_room)
        spinning.close()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [False]


def test_it_returns_what_comes(with_room):
    polls = Polls(3)
    assert with_room.poll(polls, 1) == [(0, select.POLLIN)]
    assert polls.count == 3


def test_seldom_after_spins_in_vain(with_room):
    def spins() -> bool:
        polls = Polls()
        assert with_room.poll(polls, 1) == []
        return polls.count > 0

    assert [spins() for _ in range(16 + 32)].count(True) == 16 + 2
    while not with_room.poll(Polls(1), 1):
        pass
    assert spins()


def test_a_worker_that_waits_for_its_processor_pauses(spinning, monkeypatch):
    """The kernel's count of the machine says that there is room, as in a cpuset that is busier than the machine."""
    monkeypatch.setattr(spinning, "_processors", 10_000)
    places = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(places)})
        with ExitStack() as stack:
            for _ in range(3):  # children have this one's affinity
                loop = stack.enter_context(subprocess.Popen([sys.executable, "-c", "while True: pass"]))
                stack.callback(loop.kill)

            def pauses() -> bool:
                spinning._misses = 0
                spinning.poll(Polls(), 1)
                return not spinning.has_room

            busy_until(pauses)  # one that slept in between would not wait for its processor
    finally:
        os.sched_setaffinity(0, places)
