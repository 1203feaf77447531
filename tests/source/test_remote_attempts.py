"""Requests of a store: how often and how long each is tried, and how many run at once."""

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from time import monotonic, sleep

import pytest
from range_server import range_server

from touchfs.source.data import DATA
from touchfs.source.remote import ranges
from touchfs.source.remote.blocks import BLOCK
from touchfs.source.remote.calls import deadline_from_now
from touchfs.source.remote.options import TIMEOUT_VARIABLE, StorageOptions
from touchfs.source.remote.ranges import PAUSE_MAX, PAUSE_SECONDS, _pauses

SIZE = 7 * BLOCK + 12_345


@pytest.fixture
def server(tmp_path, monkeypatch):
    monkeypatch.setenv("TOUCHFS_SCRATCH_DIR", str(tmp_path / "scratch"))
    with range_server() as server:
        yield server


@pytest.fixture(scope="module")
def data():
    return random.Random(1).randbytes(SIZE)


def test_a_request_that_hangs_is_sent_again(server, data, monkeypatch):
    """The second one has the answer while the first still waits for one."""
    monkeypatch.setattr(ranges.tried, "__defaults__", (2.0,))
    file, goes_on = DATA.open(server.put("/a.bin", data)), threading.Event()
    file.open()
    faults = [lambda: goes_on.wait(60) and None]
    server.fault = lambda: faults.pop()() if faults else None
    try:
        assert file.read(2 * BLOCK, 1000) == data[2 * BLOCK : 2 * BLOCK + 1000]
        assert not goes_on.is_set()
        assert len(server.ranges) == 2
        assert server.ranges[0] == server.ranges[1]
    finally:
        goes_on.set()


def test_pauses_double_up_to_a_limit_and_are_not_those_of_others():
    runs = [list(islice(_pauses(monotonic() + 1000), 10)) for _ in range(20)]
    for number, pauses in enumerate(zip(*runs, strict=True)):
        longest = min(PAUSE_SECONDS * 2**number, PAUSE_MAX)
        assert all(longest / 2 <= pause <= longest for pause in pauses)
        assert len(set(pauses)) > 10, "clients that failed together do not come together"


def test_no_pause_ends_after_the_deadline():
    for _ in range(200):
        pauses = list(islice(_pauses(monotonic() + 0.3), 8))
        assert all(pause < 0.3 for pause in pauses if pause is not None)
        assert pauses[-1] is None
    assert next(_pauses(monotonic() - 1)) is None


def test_a_read_may_take_five_minutes_by_default(monkeypatch):
    monkeypatch.delenv(TIMEOUT_VARIABLE, raising=False)
    assert StorageOptions.configured().timeout_seconds == 300
    before = monotonic()
    deadline = deadline_from_now()
    assert deadline > before + 298
    assert deadline <= monotonic() + 300


@pytest.mark.parametrize("limit", [1, 3])
def test_no_more_requests_at_once_than_the_option_says(server, data, monkeypatch, limit):
    """Those of reads and those that are ahead of them, of several files."""
    monkeypatch.setenv("TOUCHFS_REQUESTS", str(limit))
    lock, running, most, limit_reached = threading.Lock(), [0], [0], threading.Event()

    def count():
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
            if most[0] >= limit:
                limit_reached.set()
        limit_reached.wait(30)  # for a client that is slow to send as many as it may
        sleep(0.02)
        with lock:
            running[0] -= 1

    files = [DATA.open(server.put(f"/{name}.bin", data)) for name in "abcd"]
    for file in files:
        file.open()
    server.fault = count
    places = [(file, number * BLOCK) for number in range(7) for file in files]

    def is_right(place):
        file, start = place
        return file.read(start, BLOCK) == data[start : start + BLOCK]

    with ThreadPoolExecutor(len(places)) as pool:
        assert all(pool.map(is_right, places))
    assert most == [limit]
