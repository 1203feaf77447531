import os
import signal
import struct
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from processes import runs
from recordings import decode_all, make, to_16_bits
from waiting import wait_until

from touchfs.core.errors import FormatError, NotFoundError, TouchfsError
from touchfs.core.extent import Memory
from touchfs.media.decoder import messages
from touchfs.media.decoder.pool import DecodePool, _Child
from touchfs.media.slices.probe import probe
from touchfs.media.slices.read_slice import read_slice


@pytest.fixture(scope="module")
def mp3(tmp_path_factory):
    return make(tmp_path_factory.mktemp("recordings"), "a.mp3", 44100, 2)


def all_children() -> list[int]:
    """Processes of ours that decode."""
    found = []
    for pid in Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split():
        if b"touchfs.media.decoder.child" in Path(f"/proc/{pid}/cmdline").read_bytes():
            found.append(int(pid))
    return found


# The pool that all of a process share may have been started by a test before.
SHARED = set(all_children())


def children() -> list[int]:
    """Processes that were started by the tests here."""
    return [child for child in all_children() if child not in SHARED]


@pytest.fixture(autouse=True)
def only_ours():
    SHARED.update(all_children())


def test_a_child_is_started_when_it_is_needed_and_stays(mp3):
    content = Memory(mp3.read_bytes())
    with DecodePool(children=1, timeout=60) as pool:
        assert children() == []
        info = probe(content, pool)
        (child,) = children()
        for first in range(0, 100_000, 10_000):
            read_slice(content, info, first, 1000, pool)
        for _ in range(2):
            with pytest.raises(NotFoundError, match="p: it is gone"):
                probe(Missing(content.data), pool)
        assert children() == [child]
        opens_no_files(child)
    assert children() == []


class Missing(Memory):
    """A content whose errors come through, and do a child no harm."""

    def read(self, offset, length):
        if length > 64:
            raise NotFoundError("it is gone", path="p")
        return super().read(offset, length)


def opens_no_files(child: int) -> None:
    limits = Path(f"/proc/{child}/limits").read_text()
    open_files = next(line for line in limits.splitlines() if line.startswith("Max open files"))
    assert open_files.split()[3:5] == ["0", "0"]
    targets = [os.readlink(entry) for entry in Path(f"/proc/{child}/fd").iterdir()]
    assert all(target == "/dev/null" or target.startswith("socket:") for target in targets)


def test_a_dead_child_costs_at_most_its_request(mp3):
    content = Memory(mp3.read_bytes())
    expected = to_16_bits(decode_all(mp3))[5000:6000]
    with DecodePool(children=1, timeout=60) as pool:
        info = probe(content, pool)
        (child,) = children()
        os.kill(child, signal.SIGKILL)
        os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
        assert np.array_equal(read_slice(content, info, 5000, 1000, pool).samples, expected)


def test_a_child_that_dies_in_a_request_is_an_error_of_it(mp3):
    class Killing(Memory):
        def read(self, offset, length):
            for child in children():
                os.kill(child, signal.SIGKILL)
            return super().read(offset, length)

    data = mp3.read_bytes()
    with DecodePool(children=1, timeout=60) as pool:
        with pytest.raises(FormatError, match="the decoder crashed"):
            probe(Killing(data), pool)
        probe(Memory(data), pool)


def test_a_child_that_is_too_slow_is_killed(mp3):
    content = Memory(mp3.read_bytes())
    with DecodePool(children=1, timeout=60) as pool:
        info = probe(content, pool)
        (child,) = children()
        os.kill(child, signal.SIGSTOP)
        pool.timeout = 0.05
        with pytest.raises(FormatError, match=r"decoding takes over 0\.05 s"):
            read_slice(content, info, 0, 1000, pool)
        assert children() == []
        pool.timeout = 60
        assert len(read_slice(content, info, 0, 1000, pool).samples) == 1000


def test_a_slow_content_is_no_slow_decoder(mp3, pool, monkeypatch):
    class Slow(Memory):
        def read(self, offset, length):
            if length > 1000:
                threading.Event().wait(1.5)
            return super().read(offset, length)

    data = mp3.read_bytes() + bytes(1 << 19)  # three blocks
    info = probe(Memory(data), pool)
    monkeypatch.setattr(pool, "timeout", 2)
    assert probe(Slow(data), pool).to_bytes() == info.to_bytes()


def test_memory_is_limited(mp3):
    content = Memory(mp3.read_bytes())
    with DecodePool(children=1, timeout=60, memory=1 << 24) as pool:
        with pytest.raises(FormatError, match="memory"):
            info = probe(content, pool)
            request = {
                "sample_format": "s16",
                "target": "s16",
                "channels": 1,
                "rate": 8000,
                "new_rate": 48000,
                "file": "wav",
            }
            pool.request("convert", request, [bytes(1 << 23)])
        assert probe(content, pool).to_bytes() == info.to_bytes()


def test_threads_share_the_children(mp3):
    content = Memory(mp3.read_bytes())
    whole = to_16_bits(decode_all(mp3))
    failed = []

    def work(number: int) -> None:
        for first in range(number * 1000, 300_000, 17_000):
            if not np.array_equal(read_slice(content, info, first, 3000, pool).samples, whole[first : first + 3000]):
                failed.append(first)

    with DecodePool(children=2, timeout=60) as pool:
        info = probe(content, pool)
        threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(children()) <= 2
    assert failed == []


def test_a_fork_does_not_share_children(mp3):
    content = Memory(mp3.read_bytes())
    expected = to_16_bits(decode_all(mp3))[5000:6000]
    with DecodePool(children=1, timeout=60) as pool:
        info = probe(content, pool)
        before = children()
        pid = os.fork()
        if pid == 0:
            is_equal = np.array_equal(read_slice(content, info, 5000, 1000, pool).samples, expected)
            is_own = len(children()) == 1 and children() != before
            pool.close()
            os._exit(0 if is_equal and is_own else 1)
        assert os.waitpid(pid, 0)[1] == 0
        assert children() == before
        assert np.array_equal(read_slice(content, info, 5000, 1000, pool).samples, expected)


def test_children_end_with_their_parent(mp3):
    program = (
        "import os, sys\n"
        "from touchfs.core.extent import Memory\n"
        "from touchfs.media.decoder.pool import DecodePool\n"
        "from touchfs.media.slices.probe import probe\n"
        "pool = DecodePool()\n"
        "probe(Memory(open(sys.argv[1], 'rb').read()), pool)\n"
        "print(pool._idle[0]._process.pid, flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, mp3], capture_output=True, text=True, check=False)
    child = int(done.stdout)
    wait_until(lambda: not runs(child))


def test_a_child_that_was_taken_over_can_send_wrong_values_only(mp3):
    """A process in the place of a child, that answers anything."""
    import socket

    class TakenOver(_Child):
        def __init__(self, connection: socket.socket) -> None:
            self._connection, self._process = connection, subprocess.Popen(["sleep", "600"])

    content = Memory(mp3.read_bytes())
    for answer in (
        b"",
        struct.pack("<II", 2**32 - 1, 0),
        struct.pack("<II", 2, 2**32 - 1) + b"{}",
        struct.pack("<II", 12, 5) + b'{"blobs":[]}hello',
        struct.pack("<II", 4, 0) + b"none",
        struct.pack("<II", 2, 0) + b"[]",
        struct.pack("<II", 21, 1) + b'{"blobs": [99999999]}x',
        struct.pack("<II", 14, 0) + b'{"blobs":[-1]}',
        struct.pack("<II", 27, 0) + b'{"blobs":[], "read":[-1,5]}',
        struct.pack("<II", 25, 0) + b'{"blobs":[],"read":[0,9]}',
        struct.pack("<II", 34, 0) + b'{"blobs":[],"read":["a",{"b": 1}]}',
        struct.pack("<II", 12, 0) + b'{"blobs":[]}',
    ):
        ours, theirs = socket.socketpair()
        with theirs, DecodePool(children=1, timeout=2) as pool:
            pool._idle.append(TakenOver(ours))
            theirs.sendall(answer)
            theirs.shutdown(socket.SHUT_WR)
            with pytest.raises(TouchfsError):
                probe(content, pool)


def test_messages():
    import socket

    ours, theirs = socket.socketpair()
    with ours, theirs:
        messages.send(ours, {"a": [1, "b"]}, b"one", memoryview(b"two"), b"", np.zeros((0, 2)).data)
        message = messages.receive(theirs)
        assert message.values == {"a": [1, "b"]}
        assert [bytes(blob) for blob in message.blobs] == [b"one", b"two", b"", b""]
