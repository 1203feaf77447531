"""A store that stops answering: nobody waits for it longer than --timeout, and who does not want to wait need not."""

import os
import signal
import subprocess
import threading
import time

import pytest
from mounts import is_mounted, touchfs
from range_server import range_server
from tars import write_tar
from waiting import wait_until

TIMEOUT = 3


@pytest.fixture
def server(tmp_path, monkeypatch):
    monkeypatch.setenv("TOUCHFS_SCRATCH_DIR", str(tmp_path / "scratch"))
    goes_on = threading.Event()
    with range_server() as server:
        data = write_tar(tmp_path / "made.tar", {"s.bin": bytes(9_000_000), "t.bin": b"x" * 9_000_000}).read_bytes()
        server.put("/set/a.tar", data)
        server.hang = lambda: setattr(server, "fault", lambda: goes_on.wait(60) and None)
        yield server
        goes_on.set()


def cat(path):
    return subprocess.Popen(["cat", path], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("answer", ["nothing", "503"])
def test_a_read_takes_the_time_out_once(mount, server, answer):
    """The kernel asks several times for pages that cannot be read: those who ask again are answered at once."""

    def seconds(attempt: int) -> float:
        server.fault = lambda: None
        mounted = mount(f"{server.url}/set/", "--timeout", TIMEOUT, "--revalidate", 1000, name=f"mnt{attempt}")
        path = mounted.path / "shards" / "a" / "t.bin"
        path.stat()
        server.hang() if answer == "nothing" else setattr(server, "fault", lambda: answer)
        begun = time.monotonic()
        _, message = cat(path).communicate()
        taken = time.monotonic() - begun
        assert "timed out" in message
        mounted.end()
        return taken

    # Never so soon if there was a second time-out. A busy machine may take longer, but not always.
    assert any(seconds(attempt) < 2 * TIMEOUT for attempt in range(5))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_reader_that_is_killed_or_interrupted_ends_in_time(mount, server, number):
    # An interrupt waits for the time-out.
    mounted = mount(f"{server.url}/set/", "--timeout", 8 if number == signal.SIGINT else 1800, "--revalidate", 1000)
    path = mounted.path / "shards" / "a" / "t.bin"
    path.stat()
    server.hang()
    reader = cat(path)
    wait_until(lambda: server.ranges and server.ranges[-1][1] > 9_000_000)
    reader.send_signal(number)
    reader.communicate(timeout=60)
    assert reader.returncode == -number


def test_abort_frees_all_readers_at_once(mount, server):
    """The time-out is that of half an hour."""
    mounted = mount(f"{server.url}/set/", "--timeout", 1800, "--revalidate", 1000)
    directory = mounted.path / "shards" / "a"
    assert sorted(os.listdir(directory)) == ["s.bin", "t.bin"]
    server.hang()
    readers = [cat(directory / name) for name in ("s.bin", "t.bin", "s.bin")]
    wait_until(lambda: len(server.ranges) > 1)
    assert touchfs("umount", "--abort", mounted.path).returncode == 0
    for reader in readers:
        assert reader.communicate(timeout=60)[1]
    wait_until(lambda: not is_mounted(mounted.path))
