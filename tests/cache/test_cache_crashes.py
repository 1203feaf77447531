"""A writer is killed at any point: the cache is the old one or the new one, never neither and never a mixture."""

import multiprocessing
import os
import random
import signal
import tempfile
import time
from multiprocessing import forkserver
from pathlib import Path

import pytest
from cache.crash_writer import FEATURES, ROWS, STEP, write_for_ever, write_generation, write_until

from touchfs.cache import VideoRef, open_cache

# In the soak, the writer is killed so often.
KILLS = int(os.environ.get("TOUCHFS_KILLS", "40"))


@pytest.fixture(scope="module")
def processes():
    context = multiprocessing.get_context("forkserver")
    # A server that another test started has imported nothing: a process would take half a second to start, not 20 ms.
    forkserver._forkserver._stop()
    # pyarrow imports pandas where it is installed, for its first array.
    context.set_forkserver_preload(["touchfs.cache", "pyarrow", "pandas"])
    yield context
    forkserver._forkserver._stop()


@pytest.fixture
def place():
    """In memory where there is such a place: a killed process loses nothing, and flushing hundreds of times is slow."""
    memory = "/dev/shm"
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as directory:
        yield Path(directory, "cache")


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


def test_killed_at_random(place, processes):
    write_generation(place, 0)  # imports, too
    begin = time.monotonic()
    write_generation(place, 0)
    span = max(0.1, 4 * (time.monotonic() - begin))  # a busy machine takes longer
    generation, changed = 0, 0
    chance = random.Random(KILLS)
    for _ in range(KILLS):
        is_ready = processes.Event()
        process = processes.Process(target=write_for_ever, args=(place, generation + 1, is_ready))
        process.start()
        assert is_ready.wait(60)
        time.sleep(chance.random() * span)
        process.kill()
        process.join(60)
        assert process.exitcode == -signal.SIGKILL
        found = generation_of(place)
        assert found >= generation
        changed += found > generation
        generation = found
    assert changed
    write_generation(place, generation + 1)
    assert generation_of(place) == generation + 1 and leftovers(place) == []


def test_killed_before_each_operation(place, processes):
    write_generation(place, 0)
    found = set()
    for step in range(500):
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
