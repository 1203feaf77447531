"""A writer is killed at any point: the cache is the old one or the new one, never neither and never a mixture."""

import os
import random
import signal
import tempfile
import time
from pathlib import Path

import pytest
from caches.crash_writer import FEATURES, ROWS, STEP, write_for_ever, write_generation, write_until
from own_forkserver import preloaded
from waiting import wait_until

from touchfs.cache import VideoRef, open_cache


@pytest.fixture(scope="module")
def processes():
    # pyarrow imports pandas where it is installed, for its first array.
    with preloaded("touchfs.cache", "pyarrow", "pandas") as context:
        yield context


@pytest.fixture
def place():
    """In memory where there is such a place: a killed process loses nothing, and flushing hundreds of times is slow."""
    memory = "/dev/shm"
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as directory:
        yield Path(directory, "cache")


def first_of(place):
    """The first row: what it names is gone when the next generation is there."""
    return open_cache(place, FEATURES).backend.get_row(0)["x"]


def generation_of(place):
    """Which generation the cache is of, all of whose rows and videos are there."""
    backend = open_cache(place, FEATURES).backend
    rows = backend.table.to_pylist()
    first = rows[0]["x"]
    assert [row["x"] for row in rows] == list(range(first, first + ROWS)) and first % STEP == 0
    for row in rows[:2]:
        assert VideoRef(row["video"], place).bytes == b"%d-%d.mp4" % (first // STEP % 5, row["x"] % 2)
    return first // STEP


def leftovers(place):
    return [path.name for path in place.parent.iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize("kills", [6, pytest.param(1000, marks=pytest.mark.soak)])
def test_killed_at_random(place, processes, kills):
    """Every second time when it has written a generation at least, so that there are some on any machine."""
    write_generation(place, 0)  # imports, too
    begin = time.monotonic()
    write_generation(place, 0)
    span = time.monotonic() - begin
    generation, chance = 0, random.Random(kills)
    for number in range(kills):
        process = processes.Process(target=write_for_ever, args=(place, generation + 1))
        process.start()
        if number % 2:
            wait_until(lambda: first_of(place) > STEP * generation)  # noqa: B023
        time.sleep(chance.random() * span)
        process.kill()
        process.join(60)
        assert process.exitcode == -signal.SIGKILL
        found = generation_of(place)
        assert found - generation >= number % 2
        generation = found
    write_generation(place, generation + 1)
    assert generation_of(place) == generation + 1 and leftovers(place) == []


@pytest.mark.parametrize("every", [7, pytest.param(2, marks=pytest.mark.variant)])
def test_killed_before_each_operation(place, processes, every):
    write_generation(place, 0)
    found = set()
    for step in range(0, 500, every):
        process = processes.Process(target=write_until, args=(place, 1, step))
        process.start()
        process.join(60)
        found.add(generation_of(place))
        if process.exitcode == 0:
            break
        assert process.exitcode == -signal.SIGKILL
        write_generation(place, 0)
        assert generation_of(place) == 0 and leftovers(place) == []
    assert found == {0, 1} and step > 30 and process.exitcode == 0
