"""Files over SSH, by asyncssh. A host must be known to OpenSSH: clients of fsspec accept any key.

Also the package sshfs does. Besides, it reads whole files for ranges of them, and connects only once.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from stat import S_ISDIR, S_ISLNK
from typing import Any

import asyncssh
from fsspec.asyn import AsyncFileSystem

from touchfs.core.errors import SourceError

# After these seconds of silence a server counts as lost. The attempt is given up then, too.
_SILENT_SECONDS = 30.0
_PROBES = 3


class SftpClient(AsyncFileSystem):  # type: ignore[misc]  # fsspec has no types
    """Files of one host. It connects when the first file is asked for, and again after it has lost the connection.

    `~/.ssh/config` is followed, and keys come from the agent and `~/.ssh`. What else `asyncssh.connect` takes can be an
    option, and `known_hosts`, a further file of these.
    """

    protocol = ("sftp", "ssh")

    def __init__(self, host: str, known_hosts: str | None = None, **options: Any) -> None:
        ours = {name: options.pop(name) for name in ("use_listings_cache", "skip_instance_cache") if name in options}
        super().__init__(**ours)
        self._host, self._known_hosts, self._options = host, known_hosts, options
        self._session: _Session | None = None
        self._connecting = asyncio.Lock()

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        _, separator, rest = path.partition("://")
        return "/" + rest.partition("/")[2] if separator else path  # a name may have `?` and `#`

    async def _info(self, path: str, **_: object) -> dict[str, Any]:
        """Size, type and time of a file or directory. A link is what it leads to."""
        async with self.files() as files:
            return _described(await files.stat(path), path)

    async def _ls(self, path: str, detail: bool = True, **_: object) -> list[Any]:
        """The entries of a directory. Links are left out that lead nowhere."""
        found = []
        async with self.files() as files:
            for each in await files.readdir(path):
                name = os.path.join(path, str(each.filename))
                if each.filename not in (".", ".."):
                    with suppress(asyncssh.SFTPNoSuchFile):
                        is_link = S_ISLNK(each.attrs.permissions or 0)
                        found.append(_described(await files.stat(name) if is_link else each.attrs, name))
        return found if detail else [each["name"] for each in found]

    async def _cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: object) -> bytes:
        async with self.files() as files, files.open(path, "rb") as file:
            first, last, _step = slice(start, end).indices((await file.stat()).size or 0)
            data: Any = await file.read(last - first, first) if first < last else b""
            return bytes(data)

    def _open(self, path: str, mode: str = "rb", **_: object) -> Any:
        raise NotImplementedError("touchfs only reads files of SFTP")

    @asynccontextmanager
    async def files(self) -> AsyncIterator[asyncssh.SFTPClient]:
        """The files of the host, as asyncssh has them. Errors are those of local files."""
        session = None
        try:
            async with self._connecting:
                if self._session is None or self._session.is_lost:
                    self._session = await self._connect()
                session = self._session
            yield session.files
        except (asyncssh.SFTPNoSuchFile, asyncssh.SFTPNoSuchPath) as error:
            raise FileNotFoundError(error.reason) from None
        except asyncssh.SFTPPermissionDenied as error:
            raise PermissionError(error.reason) from None
        except asyncssh.Error as error:
            if session is not None and isinstance(error, asyncssh.SFTPConnectionLost | asyncssh.SFTPNoConnection):
                session.connection.abort()  # the server's process has ended, perhaps not the connection
            raise OSError(error.reason) from None  # its code is none of HTTP

    async def _connect(self) -> _Session:
        # Always given: if the user's configuration says that there are none, asyncssh would accept any host.
        session = _Session(_known(self._known_hosts))
        limits = {"connect_timeout": _SILENT_SECONDS, "login_timeout": _SILENT_SECONDS}
        limits |= {"keepalive_interval": _SILENT_SECONDS / _PROBES, "keepalive_count_max": _PROBES}
        try:
            await asyncssh.connect(
                self._host, **limits | self._options, known_hosts=session.known, client_factory=lambda: session
            )
        except asyncssh.HostKeyNotVerifiable as error:
            raise SourceError(session.refusal or str(error), path=self._host) from error
        except asyncssh.PermissionDenied as error:
            message = "the host lets you not in: is your key in ~/.ssh or the agent, and the user right?"
            raise SourceError(message, path=self._host) from error
        except FileNotFoundError as error:
            raise SourceError("no such key: is IdentityFile right in ~/.ssh/config?", path=error.filename) from error
        try:
            session.files = await session.connection.start_sftp_client(path_errors="surrogateescape")
        except BaseException:  # also if nobody waits any more
            session.connection.abort()
            raise
        return session


class _Session(asyncssh.SSHClient):
    """A connection to a host whose key is known."""

    connection: asyncssh.SSHClientConnection
    files: asyncssh.SFTPClient

    def __init__(self, known: bytes) -> None:
        self.known, self.refusal, self.is_lost = known, "", False

    def validate_host_public_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:
        """No connection to a host whose key nobody has looked at."""
        if asyncssh.match_known_hosts(self.known, host, addr, port)[0]:
            self.refusal = "it has another key than known_hosts says: is it the same host?"
        else:
            name = key.get_algorithm()
            self.refusal = f"its key {name} {key.get_fingerprint()} is not in known_hosts: `ssh` there once"
        return False

    def connection_made(self, conn: asyncssh.SSHClientConnection) -> None:
        self.connection = conn

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True


def _known(further: str | None) -> bytes:
    """The keys of the hosts that the user knows, as OpenSSH has them."""
    known = b""
    with suppress(FileNotFoundError):
        known = Path("~/.ssh/known_hosts").expanduser().read_bytes()
    try:
        return known if further is None else known + b"\n" + Path(further).read_bytes()
    except OSError as error:
        raise SourceError(f"these known_hosts cannot be read: {error.strerror}", path=further) from error


def _described(status: asyncssh.SFTPAttrs, path: str) -> dict[str, Any]:
    kind = "directory" if S_ISDIR(status.permissions or 0) else "file"
    return {"name": path, "size": status.size, "type": kind, "mtime": datetime.fromtimestamp(status.mtime or 0, UTC)}
