"""Requests of a store: how often and how long each is tried, and how many run at once."""

import random
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from time import monotonic, sleep

import pytest
from botocore.exceptions import ClientError
from waiting import wait_until

from touchfs.core.errors import SourceError
from touchfs.source.data import DATA
from touchfs.source.remote import ranges
from touchfs.source.remote.blocks import BLOCK
from touchfs.source.remote.calls import deadline_from_now
from touchfs.source.remote.client_errors import may_pass
from touchfs.source.remote.protocols.http import HttpRequest
from touchfs.source.remote.ranges import PAUSE_MAX, PAUSE_SECONDS, _pauses
from touchfs.source.remote.storage_options import TIMEOUT_VARIABLE, StorageOptions

SIZE = 7 * BLOCK + 12_345


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
        assert len(server.ranges) >= 2  # more if the machine stands still
        assert len(set(server.ranges)) == 1
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


def test_a_port_where_nobody_ever_answered_is_no_store():
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"http://127.0.0.1:{free.getsockname()[1]}/a.bin"
    begun = monotonic()
    with pytest.raises(
        SourceError, match=r"a\.bin: cannot be read: the connection was refused: does its server run\?$"
    ):
        DATA.stat(url)
    assert monotonic() - begun < 150  # one that has answered before has five minutes


def test_a_store_that_has_answered_may_be_away_for_longer(server, data, monkeypatch):
    monkeypatch.setattr(ranges, "UNKNOWN_TRIES", 1)
    file = DATA.open(server.put("/a.bin", data))
    file.open()
    refused = [ConnectionRefusedError(), ConnectionRefusedError()]
    read = HttpRequest.read

    async def read_later(self, start, stop):
        if refused:
            raise refused.pop()
        return await read(self, start, stop)

    monkeypatch.setattr(HttpRequest, "read", read_later)
    assert file.read(5, 1000) == data[5:1005]


def test_who_waits_for_a_store_is_told(server, data, monkeypatch, caplog):
    monkeypatch.setattr(ranges, "WARN_SECONDS", 0.05)
    ranges._WARNED.clear()
    file, goes_on = DATA.open(server.put("/a.bin", data)), threading.Event()
    file.open()
    server.fault = lambda: goes_on.wait(60) and None
    with ThreadPoolExecutor(2) as readers:
        reading = [readers.submit(file.read, block * BLOCK, 1000) for block in (2, 5)]
        wait_until(lambda: caplog.records)
        goes_on.set()
        assert [each.result() for each in reading] == [data[n * BLOCK : n * BLOCK + 1000] for n in (2, 5)]
    (said,) = caplog.messages
    assert said.startswith(f"{server.url}/a.bin: the store does not answer yet, and is tried again for 29")


@pytest.mark.parametrize(
    ("code", "status", "passes"),
    [("RequestTimeout", 400, True), ("PriorRequestNotComplete", 400, True), ("InvalidRequest", 400, False)],
)
def test_errors_of_s3_that_pass(code, status, passes):
    theirs = ClientError({"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}, "GetObject")
    ours = OSError(5, "of s3fs")
    ours.__cause__ = theirs
    assert (may_pass(theirs), may_pass(ours)) == (passes, passes)


def test_a_body_that_goes_on_after_its_range_is_not_believed(server, data):
    """In a chunk of its own, after all that was wanted."""
    file = DATA.open(server.put("/a.bin", data))
    file.open()
    server.fault = iter(["longer", None]).__next__
    assert file.read(0, 1000) == data[:1000]
    assert len(server.ranges) == 2
