"""Files over SSH. A host must be known to OpenSSH: fsspec's own client accepts any key.

Paramiko's channels are for one thread at a time, and a server has some for each connection, so they are shared.
"""

from __future__ import annotations

import getpass
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from stat import S_ISDIR, S_ISLNK
from typing import Any

import paramiko
from fsspec import AbstractFileSystem

from touchfs.errors import SourceError

# OpenSSH's servers allow 10 for a connection (MaxSessions), and other programs may use it, too.
CHANNELS = 8
# A server that is silent for so long counts as lost. The attempt is given up then, too.
_SILENT_SECONDS = 30.0
_CONFIGURATION = "~/.ssh/config"


class SftpClient(AbstractFileSystem):  # type: ignore[misc]  # fsspec has no types
    """Files of one host. It connects when the first file is asked for, and again after it has lost the connection.

    `~/.ssh/config` is followed in HostName, Port, User and IdentityFile. Keys come from the agent and `~/.ssh`; what
    else `paramiko.SSHClient.connect` takes can be an option, and `known_hosts`, a further file of these.
    """

    protocol = ("sftp", "ssh")

    def __init__(self, host: str, known_hosts: str | None = None, **options: Any) -> None:
        ours = {name: options.pop(name) for name in ("use_listings_cache", "skip_instance_cache") if name in options}
        super().__init__(**ours)
        self._host, self._known_hosts, self._options = host, known_hosts, options
        self._connection: Any = None
        self._idle: list[Any] = []
        self._lock = threading.Lock()
        self._free = threading.BoundedSemaphore(CHANNELS)

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        _, separator, rest = path.partition("://")
        return "/" + rest.partition("/")[2] if separator else path  # a name may have `?` and `#`

    def info(self, path: str, **_: object) -> dict[str, Any]:
        """Size, type and time of a file or directory. A link is what it leads to."""
        with self.channel() as channel:
            return _described(channel.stat(path), path)

    def ls(self, path: str, detail: bool = True, **_: object) -> list[Any]:
        """The entries of a directory. Links are left out that lead nowhere."""
        found = []
        with self.channel() as channel:
            for each in channel.listdir_attr(path):
                name = os.path.join(path, each.filename)
                try:
                    found.append(_described(channel.stat(name) if S_ISLNK(each.st_mode) else each, name))
                except FileNotFoundError:
                    continue
        return found if detail else [each["name"] for each in found]

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: object) -> bytes:
        """The bytes of a file, or a range of them."""
        with self.channel() as channel, channel.open(path) as file:
            size = file.stat().st_size
            first, last = slice(start, end).indices(size)[:2]
            return bytes(*file.readv([(first, last - first)])) if first < last else b""

    def _open(self, path: str, mode: str = "rb", **_: object) -> Any:
        raise NotImplementedError("touchfs only reads files of SFTP")

    @contextmanager
    def channel(self) -> Iterator[Any]:
        """A channel for this thread. One that has failed is not used again, so whoever tries again gets another."""
        with self._free:
            channel = self._take()
            try:
                yield channel
            except FileNotFoundError:
                self._idle.append(channel)
                raise
            except BaseException:
                channel.close()
                raise
            self._idle.append(channel)

    def _take(self) -> Any:
        with self._lock:
            transport = None if self._connection is None else self._connection.get_transport()
            if transport is None or not transport.is_active():
                self._idle.clear()
                self._connection = self._connect()
            if self._idle:
                return self._idle.pop()
            connection = self._connection
        channel = connection.open_sftp()
        channel.get_channel().settimeout(_SILENT_SECONDS)
        return channel

    def _connect(self) -> Any:
        configured = _configured(self._host)
        known = {"username": configured.get("user", getpass.getuser()), "key_filename": configured.get("identityfile")}
        connection = paramiko.SSHClient()
        connection.load_system_host_keys()
        if self._known_hosts is not None:
            try:
                connection.load_system_host_keys(self._known_hosts)
            except OSError as error:
                problem = f"these known_hosts cannot be read: {error.strerror}"
                raise SourceError(problem, path=self._known_hosts) from error
        connection.set_missing_host_key_policy(_Refusal())
        options = {"port": int(configured.get("port", 22)), **known, **self._options}
        seconds = dict.fromkeys(("timeout", "banner_timeout", "auth_timeout", "channel_timeout"), _SILENT_SECONDS)
        try:
            connection.connect(configured["hostname"], **seconds | options)
        except paramiko.BadHostKeyException as error:
            raise SourceError(
                "it has another key than known_hosts says: is it the same host?", path=self._host
            ) from error
        except FileNotFoundError as error:
            raise SourceError("no such key: is IdentityFile right in ~/.ssh/config?", path=error.filename) from error
        except paramiko.SSHException as error:
            if isinstance(error, paramiko.AuthenticationException) or "No authentication methods" in str(error):
                message = "the host lets you not in: is your key in ~/.ssh or the agent, and the user right?"
                raise SourceError(message, path=self._host) from error
            raise
        return connection


class _Refusal(paramiko.MissingHostKeyPolicy):  # type: ignore[misc]  # paramiko has no types
    """No connection to a host whose key nobody has looked at."""

    def missing_host_key(self, client: object, hostname: str, key: Any) -> None:
        raise SourceError(
            f"its key {key.get_name()} {key.fingerprint} is not in known_hosts: `ssh` there once", path=hostname
        )


def _configured(host: str) -> Any:
    """The settings of a host in the user's configuration of OpenSSH."""
    try:
        return paramiko.SSHConfig.from_path(os.path.expanduser(_CONFIGURATION)).lookup(host)
    except FileNotFoundError:
        return {"hostname": host}


def _described(status: Any, path: str) -> dict[str, Any]:
    kind = "directory" if S_ISDIR(status.st_mode) else "file"
    modified = datetime.fromtimestamp(status.st_mtime, UTC)
    return {"name": path, "size": status.st_size, "type": kind, "mtime": modified}
