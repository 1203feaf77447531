"""The numbers of a real mount, served by its supervisor and shown by a command."""

import fcntl
import json
import os
import pty
import re
import signal
import socket
import stat
import struct
import subprocess
import termios
import urllib.error
from contextlib import suppress
from typing import Any

import pytest
from command import TOUCHFS
from mount_numbers import Numbers, fetch, numbers_of
from mounts import Mount, touchfs
from processes import runs
from waiting import wait_until


def is_free(port: int) -> bool:
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


def test_the_supervisor_serves_the_numbers(mount, speech):
    mounted = mount(speech, "--metrics", 0)
    url = mounted.info()["metrics"]
    assert url.startswith("http://127.0.0.1:")
    next(mounted.files()).read_bytes()
    reads = numbers_of(mounted).requests("read")
    for process in mounted.serving():
        os.kill(process, signal.SIGSTOP)
    try:
        assert Numbers(fetch(url)).requests("read") >= reads > 0
    finally:
        for process in mounted.serving():
            os.kill(process, signal.SIGCONT)
    with pytest.raises(urllib.error.HTTPError) as refused:
        fetch(url, Host="evil.example")
    assert refused.value.code == 400
    refused.value.close()
    status = touchfs("status", mounted.path)
    assert f"metrics     {url}\n" in status.stdout
    # Nobody else listens, or the port would be in use as long as any process of the mount lives.
    port = int(url.rpartition(":")[2].partition("/")[0])
    supervisor, *others = mounted.processes()
    with open(next(mounted.files()), "rb"):  # so the workers live on
        os.kill(supervisor, signal.SIGKILL)
        wait_until(lambda: not runs(supervisor))
        wait_until(lambda: is_free(port))
        assert any(map(runs, others))
    wait_until(lambda: not any(map(runs, others)))


def port_of(mounted: Mount) -> int:
    return int(mounted.info()["metrics"].rpartition(":")[2].partition("/")[0])


def test_only_a_public_port_is_one_of_all_addresses(mount, speech):
    """127.0.0.2 stands for the other addresses of this machine, and everybody's name for it is accepted there."""
    private = mount(speech, "--metrics", 0)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", port_of(private)), timeout=30)
    public = mount(speech, "--metrics", 0, "--metrics-public", name="public")
    assert public.info()["metrics"] == f"http://0.0.0.0:{port_of(public)}/metrics"
    url = f"http://127.0.0.2:{port_of(public)}/metrics"
    assert Numbers(fetch(url)).requests("getxattr") > 0
    assert Numbers(fetch(url, Host="speech.example")).requests("getxattr") > 0


def test_a_port_in_use_is_an_error_and_nothing_is_mounted(speech, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        done = touchfs("mount", speech, tmp_path / "mnt", "--metrics", port)
    assert done.returncode == 1
    assert done.stderr == f"touchfs: --metrics {port}: the port cannot be used: Address already in use\n"
    assert not (tmp_path / "mnt").exists()


def test_a_unix_socket_is_made_and_removed_and_replaced(mount, speech, tmp_path):
    path = tmp_path / "metrics.sock"
    mounted = mount(speech, "--metrics", f"unix:{path}")
    assert stat.S_IMODE(path.lstat().st_mode) == 0o600
    assert mounted.info()["metrics"] == f"unix:{path}"
    answer = subprocess.run(["curl", "-s", "--unix-socket", path, "http://x/metrics"], capture_output=True, check=True)
    assert Numbers(answer.stdout.decode()).requests("getxattr") > 0
    second = touchfs("mount", speech, tmp_path / "second", "--metrics", f"unix:{path}")
    assert (second.returncode, second.stderr.count("\n")) == (1, 1)
    assert "in use by another process" in second.stderr
    mounted.end()
    assert not os.path.lexists(path)
    mounted = mount(speech, "--metrics", f"unix:{path}")
    everyone = mounted.processes()
    os.kill(mounted.pid, signal.SIGKILL)
    wait_until(lambda: not any(map(runs, everyone)))
    assert path.lstat()
    mounted = mount(speech, "--metrics", f"unix:{path}")
    assert mounted.info()["metrics"] == f"unix:{path}"
    mounted.end()
    assert not os.path.lexists(path)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (("--metrics", "host:80"), "neither a port from 0 to 65535 nor unix:PATH"),
        (("--metrics", "0.0.0.0:80"), "neither a port from 0 to 65535 nor unix:PATH"),
        (("--metrics", "unix:sock", "--metrics-public"), "--metrics-public needs a port"),
        (("--metrics-public",), "--metrics-public needs --metrics"),
        (("--metrics", "unix:{mnt}/sock"), "is inside the mount point"),
    ],
)
def test_wrong_options(speech, tmp_path, options, error):
    done = touchfs("mount", speech, tmp_path / "mnt", *(option.format(mnt=tmp_path / "mnt") for option in options))
    assert done.returncode in (2, 10)
    assert error in done.stderr
    assert done.stderr.count("\n") == 1


def as_json(mounted: Mount) -> Any:
    done = touchfs("status", "--stats", mounted.path, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_command_shows_them(mount, speech):
    mounted = mount(speech)
    size = sum(len(path.read_bytes()) for path in mounted.files())
    wait_until(lambda: as_json(mounted)["touchfs_read_bytes_total"] >= size)  # a reply is counted once it is given
    found = as_json(mounted)
    assert found["operations"]["lookup"]["count"] == found["touchfs_requests_total"]["lookup"]
    assert 0 < found["operations"]["read"]["p50"] <= found["operations"]["read"]["p99"]
    shown = touchfs("status", "--stats", mounted.path).stdout
    assert shown.startswith("operation ")
    titles = {line[:16].strip() for line in shown.splitlines()}
    assert {"open", "read", "lookup", "bytes read", "iterator steps"} <= titles


def test_the_command_shows_rates(mount, speech):
    mounted = mount(speech)
    watching = subprocess.Popen(
        [TOUCHFS, "status", "--stats", mounted.path, "--watch"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert watching.stdout is not None
    assert watching.stdout.readline().split()[:3] == ["operation", "requests", "/s"]
    watching.send_signal(signal.SIGINT)
    _, errors = watching.communicate(timeout=30)
    assert (watching.returncode, errors) == (0, "")


class Watching:
    """`touchfs status --stats --watch` on a terminal of some rows."""

    def __init__(self, mounted: Mount, rows: int) -> None:
        self._terminal, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", rows, 80, 0, 0))
        command = [TOUCHFS, "status", "--stats", mounted.path, "--watch"]
        self.process = subprocess.Popen(command, stdout=theirs, stderr=theirs, env=os.environ | {"TERM": "xterm"})
        os.close(theirs)
        self._drawn = ""

    def tables(self) -> list[list[str]]:
        """The rows of each table that has been drawn as a whole: another one follows it."""
        self._drawn += os.read(self._terminal, 1 << 16).decode()
        text = re.sub(r"\x1b\[[?0-9;]*[A-Za-z]", "", self._drawn)
        return ["".join(table).splitlines() for table in re.split(r"(?=operation  )", text)[1:-1]]

    def end(self) -> str:
        """Wait for the end of the command. Returns all that it has drawn."""
        with suppress(OSError):  # EIO: nobody has the terminal open any more
            while data := os.read(self._terminal, 1 << 16):
                self._drawn += data.decode()
        os.close(self._terminal)
        self.process.wait(60)
        return self._drawn


def use(mounted: Mount) -> None:
    """List, read, step, and reload."""
    for path in mounted.files():
        path.read_bytes()
    train = mounted.path / ".touchfs/iterators/train"
    train.mkdir()
    (train / "next").read_bytes()
    assert touchfs("reload", mounted.path).returncode == 0


@pytest.mark.parametrize("rows", [24, pytest.param(10, marks=pytest.mark.variant)])
def test_a_terminal_shows_all_rows(mount, speech, tmp_path, rows):
    """Those of a mount in use fit into 24; on a terminal that is smaller they scroll."""
    mounted = mount(speech, "--state-dir", tmp_path / "state")
    use(mounted)
    watching = Watching(mounted, rows)
    tables = wait_until(watching.tables)
    watching.process.send_signal(signal.SIGINT)
    assert "..." not in watching.end()
    assert watching.process.returncode == 0
    assert len(tables[0]) <= 24
    titles = {row[:16].strip() for row in tables[0]}
    assert {"operation", "open", "read", "mkdir", "bytes read", "errors", "iterator steps", "reloads"} <= titles


def test_the_end_of_a_mount_ends_the_watch(mount, speech):
    mounted = mount(speech)
    watching = Watching(mounted, 24)
    wait_until(watching.tables)
    mounted.end()
    assert watching.end().endswith(f"touchfs: {mounted.path}: it was unmounted\r\n")
    assert watching.process.returncode == 1


def test_where_nothing_is_mounted(tmp_path):
    done = touchfs("status", "--stats", tmp_path)
    assert (done.returncode, done.stderr) == (1, f"touchfs: {tmp_path}: touchfs is not mounted here\n")
