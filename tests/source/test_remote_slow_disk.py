"""Reads of a web server's files while the scratch store is slow, hangs or is full."""

import random
import threading
from itertools import count

from waiting import wait_until

from touchfs.source.data import DATA
from touchfs.source.remote import flights, kept
from touchfs.source.remote.blocks import BLOCK
from touchfs.source.scratch.space import Space
from touchfs.source.scratch.store import Scratch
from touchfs.source.scratch.write_behind import WAITING_BYTES, WRITE_BEHIND

SIZE = 24 * BLOCK


def read_in_turns(file, data):
    chooser = random.Random(3)
    for _ in range(200):
        start = chooser.randrange(SIZE - 1000)
        assert file.read(start, 1000) == data[start : start + 1000]


def test_what_waits_for_a_disk_that_hangs_is_bounded(server, monkeypatch):
    monkeypatch.setattr(flights, "_WAITING_MAX", 4 * BLOCK)
    data, goes_on = random.Random(1).randbytes(SIZE), threading.Event()
    file = DATA.open(server.put("/a.bin", data))
    WRITE_BEHIND.wait()  # else it would be done here
    WRITE_BEHIND.do(WAITING_BYTES, goes_on.wait)
    try:
        assert file.read(0, SIZE) == data
        read_in_turns(file, data)
        assert 0 < flights.FLIGHTS.waiting <= 4 * BLOCK
    finally:
        goes_on.set()
    WRITE_BEHIND.wait()
    assert file.read(0, SIZE) == data


def test_a_full_store_is_not_counted_for_each_piece(server, tmp_path, monkeypatch):
    """Each look for room is a look at all its files."""
    data, counts, count = random.Random(1).randbytes(SIZE), [], Space._count
    monkeypatch.setattr(Space, "_count", lambda self: counts.append(0) or count(self))
    monkeypatch.setattr(kept, "_REFUSED_SECONDS", 1000)
    monkeypatch.setenv("TOUCHFS_SCRATCH_SIZE", "1")
    file = DATA.open(server.put("/a.bin", data))
    for start in range(0, SIZE, 128 << 10):
        assert file.read(start, 1000) == data[start : start + 1000]
        WRITE_BEHIND.wait()
    assert len(server.ranges) > 20
    assert len(counts) <= 10


def test_a_store_with_room_again_is_used_again(server, monkeypatch):
    monkeypatch.setattr(kept, "_REFUSED_SECONDS", 0.05)
    monkeypatch.setenv("TOUCHFS_SCRATCH_SIZE", "1")
    data = random.Random(1).randbytes(SIZE)
    DATA.open(server.put("/a.bin", data)).read(0, BLOCK)
    WRITE_BEHIND.wait()
    monkeypatch.setenv("TOUCHFS_SCRATCH_SIZE", "1G")
    number = count()

    def is_kept() -> bool:
        """Once the refusal is forgotten, and the disk has what is kept behind the answer."""
        DATA.open(server.put(f"/{next(number)}.bin", data)).read(0, BLOCK)
        WRITE_BEHIND.wait()
        return bool(Scratch.configured().values())

    wait_until(is_kept)
