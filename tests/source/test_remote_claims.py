"""Several processes that read a dataset at a URL through one scratch store: one of them fetches each piece."""

from __future__ import annotations

import fcntl
import os
import random
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from range_server import RangeServer, range_server
from waiting import wait_until

from touchfs.core.errors import ChangedError
from touchfs.source.data import DATA
from touchfs.source.remote import flights
from touchfs.source.remote.blocks import BLOCK
from touchfs.source.remote.kept import KEPT
from touchfs.source.scratch.claims import CLAIMS
from touchfs.source.scratch.write_behind import WRITE_BEHIND

DATA_OF_FILE = random.Random(1).randbytes(4 * BLOCK)
# Reads all of a file, and says whether it is right.
READ = """
import hashlib, sys
from touchfs.source.data import DATA
print("reads", flush=True)
print(hashlib.sha256(DATA.open(sys.argv[1]).read(0, int(sys.argv[2]))).hexdigest(), flush=True)
input()
"""


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RangeServer]:
    monkeypatch.setenv("TOUCHFS_SCRATCH_DIR", str(tmp_path / "scratch"))
    KEPT.forget()
    with range_server() as server:
        yield server
    KEPT.forget()


@contextmanager
def reader(url: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", READ, url, str(len(DATA_OF_FILE))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def held(server: RangeServer) -> Iterator[threading.Event]:
    """The server answers no request for a range until the event is set."""
    goes_on = threading.Event()

    def hold() -> None:
        goes_on.wait(60)

    server.fault = hold
    try:
        yield goes_on
    finally:
        goes_on.set()


def test_what_one_process_fetches_another_waits_for(server: RangeServer) -> None:
    url = server.put("/a.bin", DATA_OF_FILE)
    with held(server) as goes_on, reader(url), ThreadPoolExecutor(1) as threads:
        wait_until(lambda: len(server.ranges) == 1)
        data = threads.submit(DATA.open(url).read, 0, len(DATA_OF_FILE))
        with pytest.raises(TimeoutError):
            data.result(0.5)
        goes_on.set()
        assert data.result(60) == DATA_OF_FILE
    assert len(server.ranges) == 1


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_process_that_ends_or_hangs_leaves_its_pieces_to_others(
    server: RangeServer, how: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flights, "_CLAIMED_SECONDS", 60 if how == signal.SIGKILL else 0.5)
    url = server.put("/a.bin", DATA_OF_FILE)
    with held(server) as goes_on, reader(url) as first, ThreadPoolExecutor(1) as threads:
        wait_until(lambda: len(server.ranges) == 1)
        data = threads.submit(DATA.open(url).read, 0, len(DATA_OF_FILE))
        first.send_signal(how)
        wait_until(lambda: len(server.ranges) >= 2)
        goes_on.set()
        assert data.result(60) == DATA_OF_FILE


def test_a_process_that_keeps_nothing_holds_up_no_other(server: RangeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOUCHFS_SCRATCH_SIZE", "1")
    url = server.put("/a.bin", DATA_OF_FILE)
    with reader(url) as first:
        assert first.stdout is not None and first.stdout.readline() == "reads\n"
        assert DATA.open(url).read(0, len(DATA_OF_FILE)) == DATA_OF_FILE
        assert len(first.stdout.readline()) == 65
    WRITE_BEHIND.wait()


def test_no_claim_is_left_of_what_is_kept_or_fails(server: RangeServer, tmp_path: Path) -> None:
    url = server.put("/a.bin", DATA_OF_FILE * 6)
    whole, gone = DATA.open(url), DATA.open(server.put("/b.bin", DATA_OF_FILE))
    with reader(url):
        for start in range(0, len(DATA_OF_FILE) * 6, BLOCK // 2):  # others are fetched ahead
            assert len(whole.read(start, BLOCK // 2)) == BLOCK // 2
    gone.open()
    server.put("/b.bin", DATA_OF_FILE, '"2"')
    with pytest.raises(ChangedError):
        gone.read(0, BLOCK)
    WRITE_BEHIND.wait()
    with open(tmp_path / "scratch" / ".touchfs-scratch.claims", "rb+") as file:
        lock = struct.Struct("hhqqi4x")
        anywhere = lock.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        wait_until(lambda: lock.unpack(fcntl.fcntl(file, fcntl.F_OFD_GETLK, anywhere))[0] == fcntl.F_UNLCK)


def test_a_child_holds_no_claim_of_a_parent_that_has_ended(server: RangeServer) -> None:
    code = """
import os, signal
from touchfs.source.scratch.claims import CLAIMS
assert CLAIMS.take("0" * 32)
if os.fork():
    input()
    os.kill(os.getpid(), signal.SIGKILL)
else:
    print("forked", flush=True)
    signal.pause()
"""
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None and process.stdin is not None and process.stdout.readline() == "forked\n"
        try:
            assert not CLAIMS.take("0" * 32) and CLAIMS.take("1" * 32)
            process.stdin.write("\n")
            process.stdin.flush()
            wait_until(lambda: CLAIMS.take("0" * 32))
        finally:
            os.killpg(process.pid, signal.SIGKILL)
