"""Which pieces of remote files are given up first: those that were read least recently, in memory and on the disk."""

import random
import threading

import pytest
from range_server import range_server

from touchfs.source.data import DATA
from touchfs.source.remote import kept
from touchfs.source.remote.blocks import BLOCK
from touchfs.source.remote.kept import KEPT
from touchfs.source.scratch.write_behind import WRITE_BEHIND

BLOCKS = 24


@pytest.fixture
def server(tmp_path, monkeypatch):
    monkeypatch.setenv("TOUCHFS_SCRATCH_DIR", str(tmp_path / "scratch"))
    KEPT.forget()
    with range_server() as server:
        yield server
    KEPT.forget()


@pytest.fixture
def file(server):
    """A file of `BLOCKS` blocks of a server, and what the server was asked for."""
    return DATA.open(server.put("/a.bin", random.Random(1).randbytes(BLOCKS * BLOCK))), server.ranges


def read_block(file, number: int) -> None:
    assert len(file.read(number * BLOCK, BLOCK)) == BLOCK
    WRITE_BEHIND.wait()


def test_a_block_that_is_read_again_and_again_stays_on_the_disk(file, monkeypatch):
    """It is opened once, and read from there, or from memory, ever after."""
    monkeypatch.setenv("TOUCHFS_SCRATCH_SIZE", str(12 * BLOCK))
    monkeypatch.setattr(kept, "USED_SECONDS", 0.0)
    monkeypatch.setattr(KEPT, "_touch_at", 0.0)  # not later, as an earlier test may have left it
    opened, asked = file
    for number in range(0, BLOCKS, 2):  # never on, so that nothing is fetched ahead
        read_block(opened, number)
        read_block(opened, 0)
    KEPT.forget()
    del asked[:]
    read_block(opened, 0)
    assert not asked
    read_block(opened, 2)
    assert asked


def test_memory_keeps_what_is_read(file, monkeypatch):
    monkeypatch.setenv("TOUCHFS_SCRATCH_SIZE", "1")
    monkeypatch.setattr(KEPT._memory, "_most", 4 * BLOCK)
    opened, _ = file
    for number in (0, 2, 4, 6, 0, 8):
        read_block(opened, number)
    assert opened.read_nowait(0, 100) is not None
    assert opened.read_nowait(2 * BLOCK, 100) is None


def test_what_is_here_is_not_waited_for_while_its_block_is_fetched(server):
    """A header that was read for the index lies before the end of a sample. Whoever reads that does not wait."""
    url, is_over = server.put("/a.bin", random.Random(1).randbytes(2 * BLOCK)), threading.Event()
    DATA.open(url).read(BLOCK, 100)
    file = DATA.open(url)
    file.open()
    server.fault = lambda: is_over.wait(30) and None
    try:
        DATA.open(url).prefetch(0, 2 * BLOCK)
        reader = threading.Thread(target=file.read, args=(BLOCK + 100, 100), daemon=True)
        reader.start()
        reader.join(10)
        assert not reader.is_alive()
    finally:
        is_over.set()
