"""The real zygote, by its protocol: a process of its own, and the test is its supervisor."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

PROCESS = Path(__file__).with_name("zygote_process.py")


class Peer:
    """The supervisor's end, and what happens when the zygote opens the dataset again."""

    def __init__(self, place: Path) -> None:
        self.reopening = place / "reopening"
        self.reopening.write_text("works")
        self.end, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.end.settimeout(60)
        command = [sys.executable, PROCESS, str(theirs.fileno()), self.reopening]
        with theirs:
            self.process = subprocess.Popen(command, pass_fds=[theirs.fileno()], stderr=subprocess.PIPE)

    def send(self, **command: object) -> None:
        self.end.send(json.dumps(command).encode())

    def receive(self) -> dict:
        return json.loads(self.end.recv(65536))

    def children(self) -> list[int]:
        return list(map(int, Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()))

    def close(self) -> None:
        self.end.close()
        self.process.communicate(timeout=60)


@pytest.fixture(scope="module")
def peer(tmp_path_factory) -> Iterator[Peer]:
    """That of a zygote that lives through all that these tests do."""
    with closing(Peer(tmp_path_factory.mktemp("zygote"))) as peer:
        yield peer


def test_it_reports_the_start_and_the_end_of_each_worker(peer):
    for number in (0, 0):
        peer.send(fork=number, clone=True)
        started = peer.receive()
        assert started.keys() == {"started", "pid"}
        assert started["started"] == number
        # There is no session to clone: the worker fails, and the zygote says so and lives.
        assert peer.receive() == {"ended": number, "status": 1}
    assert peer.process.poll() is None
    assert peer.children() == []


@pytest.mark.parametrize(
    ("reopening", "error"),
    [
        ("works", None),
        ("fails", "/data: no such dataset"),
        ("dies", "the process that read it ended with status -9"),
        ("not-adopted", "gone meanwhile"),
    ],
)
def test_it_reports_the_result_of_a_reload(peer, reopening, error):
    peer.reopening.write_text(reopening)
    for _ in range(2):
        peer.send(reload=True)
        assert peer.receive() == {"reloaded": error}
    peer.send(invalidate=True)
    assert peer.receive() == {"invalidated": "the process that invalidates its caches ended with status 1"}


def test_it_forks_workers_while_a_reload_hangs_and_ends_when_it_is_told_to(tmp_path):
    with closing(Peer(tmp_path)) as peer:
        peer.reopening.write_text("hangs")
        peer.send(reload=True)
        peer.send(fork=0, clone=True)
        assert "started" in peer.receive()
        assert peer.receive() == {"ended": 0, "status": 1}
        (reopening,) = peer.children()
        peer.send(end=True)
        assert peer.process.wait(60) == 0
        assert not os.path.exists(f"/proc/{reopening}/fd/0")  # it was killed


def test_it_ends_with_its_supervisor(tmp_path):
    with closing(Peer(tmp_path)) as peer:
        peer.end.close()
        assert peer.process.wait(60) == 0
