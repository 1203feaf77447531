"""The log when it is rotated, and in the journal: a socket that speaks journald's side of systemd-cat(1)."""

import os
import re
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from mounts import Mount, touchfs
from processes import children
from waiting import wait_until


class Journal:
    """What each stream has sent: the header's lines, and then the entries."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.streams: list[bytearray] = []
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(os.fspath(path))
        self._listening.listen()
        self._open: list[socket.socket] = []
        self._accepting = threading.Thread(target=self._accept)
        self._accepting.start()

    def _accept(self) -> None:
        readers = []
        while (stream := self._listening.accept()[0]) and stream.recv(1, socket.MSG_PEEK) != b"!":
            self.streams.append(bytearray())
            self._open.append(stream)
            readers.append(threading.Thread(target=self._read, args=(stream, self.streams[-1])))
            readers[-1].start()
        stream.close()
        for reader in readers:
            reader.join()

    def _read(self, stream: socket.socket, received: bytearray) -> None:
        with stream:
            while data := stream.recv(4096):
                received += data

    def entries(self) -> list[str]:
        return [line for stream in self.streams for line in stream.decode().split("\n")[7:] if line]

    def restart(self) -> None:
        """End all streams, as a journald does that is killed."""
        for stream in self._open:
            with suppress(OSError):  # its other end has closed it
                stream.shutdown(socket.SHUT_RDWR)
        self._open.clear()

    def close(self) -> None:
        self.restart()
        with socket.socket(socket.AF_UNIX) as last:
            last.connect(os.fspath(self.path))
            last.send(b"!")
            self._accepting.join()
        self._listening.close()


@pytest.fixture
def journal(tmp_path, monkeypatch) -> Iterator[Journal]:
    journal = Journal(tmp_path / "journal")
    monkeypatch.setenv("TOUCHFS_JOURNAL", os.fspath(journal.path))
    yield journal
    journal.close()


def kill_worker(mounted: Mount) -> int:
    """Kill the worker, which is a line in the log, and wait for its successor. Returns its pid."""
    (worker,) = mounted.workers()
    os.kill(worker, signal.SIGKILL)
    wait_until(lambda: mounted.workers() not in ([], [worker]))
    return worker


def test_a_mount_in_the_background_logs_to_the_journal(journal, mount, speech, tmp_path):
    mounted = mount(speech, "--state-dir", tmp_path / "state")
    worker = kill_worker(mounted)
    line = rf"<4>touchfs_mount\.daemon\.supervisor: worker 0 \(pid {worker}\) ended with status -9: .*"
    wait_until(lambda: any(re.fullmatch(line, entry) for entry in journal.entries()))
    name = f"touchfs:{tmp_path}/mnt"
    assert {bytes(stream).split(b"\n")[0].decode() for stream in journal.streams if stream} == {name}
    assert bytes(journal.streams[-1]).split(b"\n")[1:7] == [b"", b"6", b"1", b"0", b"0", b"0"]
    assert not list((tmp_path / "state").glob("*.log"))
    assert mounted.info()["log"] == f"journalctl -t {name}"
    assert f"journalctl -t {name}" in touchfs("status", mounted.path).stdout


def test_it_connects_again_when_journald_was_restarted(journal, mount, speech):
    mounted = mount(speech)
    wait_until(lambda: any(journal.streams))
    journal.restart()
    worker = kill_worker(mounted)
    wait_until(lambda: any(f"(pid {worker})" in entry for entry in journal.entries()))


def test_a_log_file_that_is_named_is_written_though_there_is_a_journal(journal, mount, speech, tmp_path):
    mounted = mount(speech, "--log-file", tmp_path / "log")
    kill_worker(mounted)
    wait_until(lambda: "ended with status -9" in (tmp_path / "log").read_text())
    assert journal.streams == []
    assert mounted.info()["log"] == f"{tmp_path}/log"


def test_without_a_journal_it_is_a_file(mount, speech, tmp_path, monkeypatch):
    monkeypatch.setenv("TOUCHFS_JOURNAL", os.fspath(tmp_path / "no-journal"))
    mounted = mount(speech, "--state-dir", tmp_path / "state")
    (log,) = (tmp_path / "state").glob("*.log")
    assert mounted.info()["log"] == os.fspath(log)


@pytest.mark.parametrize("number", [signal.SIGUSR1, pytest.param(signal.SIGHUP, marks=pytest.mark.variant)])
def test_a_rotated_log_goes_on_in_a_new_file(mount, speech, tmp_path, number):
    log, old = tmp_path / "log", tmp_path / "log.1"
    mounted = mount(speech, "--log-file", log, "--log-level", "debug")
    first = kill_worker(mounted)
    wait_until(lambda: f"(pid {first})" in log.read_text())
    workers = mounted.workers()
    log.rename(old)
    os.kill(mounted.pid, number)
    wait_until(log.exists)
    assert mounted.path.joinpath(".touchfs", "info").read_bytes()  # nobody died of the signal
    before = old.read_text()
    if number == signal.SIGHUP:
        wait_until(lambda: "reloaded" in log.read_text() and mounted.info()["reloads_ended"] == 1)
    else:
        assert mounted.workers() == workers
        assert mounted.info()["reloads_begun"] == 0
    second = kill_worker(mounted)
    wait_until(lambda: f"(pid {second})" in log.read_text())
    assert old.read_text() == before
    assert f"(pid {first})" not in log.read_text()


def test_each_process_follows_a_rotated_log(mount, speech, tmp_path):
    """Also those that log nothing meanwhile: descriptor 2 is what C libraries write to."""
    log = tmp_path / "log"
    mounted = mount(speech, "--log-file", log)
    log.rename(tmp_path / "log.1")
    os.kill(mounted.pid, signal.SIGUSR1)
    wait_until(log.exists)
    os.kill(mounted.pid, signal.SIGHUP)
    wait_until(lambda: mounted.info()["reloads_ended"] == 1)
    assert os.readlink(f"/proc/{mounted.pid}/fd/2") == os.fspath(log)
    for pid in [mounted.pid, *children(mounted.pid), *mounted.workers()]:
        os.kill(pid, signal.SIGUSR1)  # as `pkill -USR1 touchfs` does: nobody dies of it
    kill_worker(mounted)
    assert set(mounted.processes()) >= {mounted.pid, *children(mounted.pid)}
