"""The numbers of a real mount, served by its supervisor and shown by a command."""

import json
import os
import signal
import socket
import stat
import subprocess
import urllib.error
import urllib.request
from typing import Any

import pytest
from mount_numbers import Numbers, numbers_of
from mounts import TOUCHFS, Mount, touchfs, wait_until
from processes import runs


def fetch(url: str, **headers: str) -> str:
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=30) as answer:
        return answer.read().decode()


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
    opens = numbers_of(mounted).requests("open")
    for worker in mounted.workers():
        os.kill(worker, signal.SIGSTOP)
    try:
        assert Numbers(fetch(url)).requests("open") == opens
    finally:
        for worker in mounted.workers():
            os.kill(worker, signal.SIGCONT)
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
    assert Numbers(answer.stdout.decode()).requests("open") > 0
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
    done = touchfs("stats", mounted.path, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_command_shows_them(mount, speech):
    mounted = mount(speech)
    size = sum(len(path.read_bytes()) for path in mounted.files())
    found = as_json(mounted)
    assert found["touchfs_read_bytes_total"] >= size
    assert found["operations"]["open"]["count"] == found["touchfs_requests_total"]["open"]
    assert 0 < found["operations"]["open"]["p50"] <= found["operations"]["open"]["p99"]
    shown = touchfs("stats", mounted.path).stdout
    assert shown.startswith("operation ")
    titles = {line[:16].strip() for line in shown.splitlines()}
    assert {"open", "read", "lookup", "bytes read", "iterator steps"} <= titles


def test_the_command_shows_rates(mount, speech):
    mounted = mount(speech)
    watching = subprocess.Popen(
        [TOUCHFS, "stats", mounted.path, "--watch"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert watching.stdout is not None
    assert watching.stdout.readline().split()[:3] == ["operation", "requests", "/s"]
    watching.send_signal(signal.SIGINT)
    _, errors = watching.communicate(timeout=30)
    assert (watching.returncode, errors) == (0, "")


def test_where_nothing_is_mounted(tmp_path):
    done = touchfs("stats", tmp_path)
    assert (done.returncode, done.stderr) == (1, f"touchfs: {tmp_path}: touchfs is not mounted here\n")
