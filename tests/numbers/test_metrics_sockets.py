"""Where the numbers are served: ports of this machine, and sockets that nobody else can open."""

import os
import socket
import stat
import threading

import pytest
from touchfs_mount.numbers.sockets import MetricsAddress, listening, parse_address

from touchfs.core.errors import MountError, UsageError


def test_addresses():
    assert parse_address("9567", public=False) == MetricsAddress(9567)
    assert parse_address("0", public=True) == MetricsAddress(0, public=True)
    assert parse_address("unix:/run/a", public=False) == MetricsAddress(path="/run/a")
    assert parse_address("unix:a", public=False) == MetricsAddress(path=os.path.abspath("a"))


@pytest.mark.parametrize("text", ["", "x", "-1", "65536", "unix:", "127.0.0.1:80", "²", "tcp:9"])
def test_what_is_no_address(text):
    with pytest.raises(UsageError, match="neither a port from 0 to 65535 nor unix:PATH"):
        parse_address(text, public=False)


def test_a_unix_socket_is_not_public():
    with pytest.raises(UsageError, match="needs a port"):
        parse_address("unix:/a", public=True)


def test_a_port_in_use_is_an_error_of_one_line():
    with listening(MetricsAddress()) as sockets:
        port = sockets.listeners[0].getsockname()[1]
        assert sockets.url == f"http://127.0.0.1:{port}/metrics"
        with (
            pytest.raises(MountError, match="port cannot be used: Address already in use"),
            listening(MetricsAddress(port)),
        ):
            pass
    with listening(MetricsAddress(port)) as sockets:  # it is free at once
        assert len(sockets.listeners) == 2


def test_a_port_in_use_for_one_family_leaves_nothing_of_the_other_bound():
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as other:
        port = other.getsockname()[1]
        with pytest.raises(MountError), listening(MetricsAddress(port)):
            pass
        socket.create_server(("127.0.0.1", port)).close()


def test_a_unix_socket_is_for_its_owner_only_and_is_removed_at_the_end(tmp_path):
    path = tmp_path / "metrics"
    modes = set()
    ended = threading.Event()

    def watch() -> None:
        while not ended.is_set():
            try:
                modes.add(stat.S_IMODE(path.lstat().st_mode))
            except FileNotFoundError:
                continue

    before = os.umask(0)
    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        for _ in range(50):
            with listening(MetricsAddress(path=str(path))) as sockets:
                assert stat.S_ISSOCK(path.lstat().st_mode)
                assert stat.S_IMODE(path.lstat().st_mode) == 0o600
                assert sockets.url == f"unix:{path}"
            assert not path.exists()
    finally:
        ended.set()
        watcher.join()
        os.umask(before)
    assert modes <= {0o600}


def test_the_socket_of_a_dead_daemon_is_replaced(tmp_path):
    path = str(tmp_path / "metrics")
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(path)
    with listening(MetricsAddress(path=path)) as sockets, socket.socket(socket.AF_UNIX) as client:
        client.connect(path)
        sockets.listeners[0].accept()[0].close()
    assert not os.path.lexists(path)


def test_a_socket_in_use_stays(tmp_path):
    path = str(tmp_path / "metrics")
    with listening(MetricsAddress(path=path)):
        with pytest.raises(MountError, match="in use by another process"), listening(MetricsAddress(path=path)):
            pass
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(path)


def test_a_foreign_file_is_never_deleted(tmp_path):
    path = tmp_path / "metrics"
    path.write_text("mine")
    link = tmp_path / "link"
    link.symlink_to(path)
    for place in (path, link, tmp_path):
        with pytest.raises(MountError, match="not a socket of yours"), listening(MetricsAddress(path=str(place))):
            pass
    assert path.read_text() == "mine"
    assert link.is_symlink()


@pytest.mark.usefixtures("as_root")
def test_the_socket_of_another_user_is_never_deleted(tmp_path):
    path = str(tmp_path / "metrics")
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(path)
    os.chown(path, 12345, 12345)
    with pytest.raises(MountError, match="not a socket of yours"), listening(MetricsAddress(path=path)):
        pass
    assert os.lstat(path).st_uid == 12345


def test_a_socket_that_took_the_place_of_ours_stays(tmp_path):
    path = str(tmp_path / "metrics")
    with listening(MetricsAddress(path=path)):
        os.rename(path, path + ".ours")
        with socket.socket(socket.AF_UNIX) as other:
            other.bind(path)
    assert os.path.lexists(path)


@pytest.mark.parametrize("name", ["missing/metrics", "x" * 200])
def test_a_path_that_cannot_be_one(tmp_path, name):
    with pytest.raises(MountError, match="no socket can be made"), listening(MetricsAddress(path=str(tmp_path / name))):
        pass
