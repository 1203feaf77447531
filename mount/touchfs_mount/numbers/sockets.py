"""The sockets at which a mount's numbers are served: `touchfs mount --metrics PORT|unix:PATH`.

They are bound before anything is mounted, so that a port in use is an error of the command. A port is one of the
loopback addresses only, unless it is public.
"""

from __future__ import annotations

import errno
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from touchfs.core.errors import MountError, UsageError

_UNIX = "unix:"
_LOOPBACK, _ALL = ("127.0.0.1", "::1"), ("0.0.0.0", "::")
# A free port of one address family may be in use in the other one.
_TRIES = 10
_NO_FAMILY = frozenset({errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL})


@dataclass(frozen=True, slots=True)
class MetricsAddress:
    """A port, 0 for any free one, or the absolute path of a unix socket. A public port is one of all addresses."""

    port: int = 0
    path: str | None = None
    public: bool = False


@dataclass(frozen=True, slots=True)
class MetricsSockets:
    """Listening sockets. `checks_host` says that requests must name this machine as their host. `url` is for people."""

    listeners: tuple[socket.socket, ...]
    url: str
    checks_host: bool


def parse_address(text: str, *, public: bool) -> MetricsAddress:
    """Parse PORT or unix:PATH. Raises UsageError."""
    if text.startswith(_UNIX) and len(text) > len(_UNIX):
        if public:
            raise UsageError("--metrics-public needs a port: a unix socket is for you and root only")
        return MetricsAddress(path=os.path.abspath(text.removeprefix(_UNIX)))
    if text.isascii() and text.isdigit() and int(text) < 1 << 16:
        return MetricsAddress(int(text), public=public)
    raise UsageError(f"--metrics {text!r} is neither a port from 0 to 65535 nor unix:PATH")


@contextmanager
def listening(address: MetricsAddress) -> Iterator[MetricsSockets]:
    """Bind the sockets, and close them at the end. Raises MountError if that cannot be done."""
    with _listening_at_path(address.path) if address.path is not None else _listening_at_port(address) as sockets:
        yield sockets


@contextmanager
def _listening_at_port(address: MetricsAddress) -> Iterator[MetricsSockets]:
    for tries_left in reversed(range(_TRIES)):
        try:
            listeners = _bind_port(address)
            break
        except OSError as error:
            if address.port or error.errno != errno.EADDRINUSE or not tries_left:
                reason = os.strerror(error.errno or 0)  # `strerror` names the address, too
                raise MountError(f"--metrics {address.port}: the port cannot be used: {reason}") from error
    host, port = listeners[0].getsockname()[:2]
    try:
        yield MetricsSockets(tuple(listeners), f"http://{host}:{port}/metrics", not address.public)
    finally:
        for listener in listeners:
            listener.close()


def _bind_port(address: MetricsAddress) -> list[socket.socket]:
    port, listeners = address.port, []
    try:
        for family, host in zip((socket.AF_INET, socket.AF_INET6), _ALL if address.public else _LOOPBACK, strict=True):
            try:
                listener = socket.create_server((host, port), family=family)
            except OSError as error:
                if family == socket.AF_INET6 and error.errno in _NO_FAMILY:
                    break
                raise
            listeners.append(listener)
            port = listener.getsockname()[1]
    except OSError:
        for listener in listeners:
            listener.close()
        raise
    return listeners


@contextmanager
def _listening_at_path(path: str) -> Iterator[MetricsSockets]:
    listener = socket.socket(socket.AF_UNIX)
    try:
        _remove_stale(path)
        os.fchmod(listener.fileno(), 0o600)  # Linux takes the mode of the file from the socket, so it is never wider
        try:
            listener.bind(path)
        except OSError as error:  # without strerror if the path is too long
            raise MountError(f"--metrics: no socket can be made: {error.strerror or error}", path=path) from error
        ours = os.lstat(path)
        listener.listen()
        try:
            yield MetricsSockets((listener,), f"{_UNIX}{path}", False)
        finally:
            with suppress(OSError):
                if os.path.samestat(os.lstat(path), ours):
                    os.unlink(path)
    finally:
        listener.close()


def _remove_stale(path: str) -> None:
    """Remove the socket of a daemon that was killed. Raises MountError if anything else is there."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return
    except OSError as error:
        raise MountError(f"--metrics: no socket can be made: {error.strerror}", path=path) from error
    if not stat.S_ISSOCK(found.st_mode) or found.st_uid != os.geteuid():
        raise MountError("--metrics: there is a file that is not a socket of yours: name another path", path=path)
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
            return
        except OSError as error:
            raise MountError(f"--metrics: the socket is in use: {error.strerror or error}", path=path) from error
    raise MountError("--metrics: the socket is in use by another process", path=path)
