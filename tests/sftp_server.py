"""An SFTP server of a directory, on loopback, with a host key of its own and the key of one user."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import asyncssh
import pytest
from ports import free_port


class SftpServer:
    """Its files are below `root`. `home` has the user's files of OpenSSH, among them `known_hosts`."""

    def __init__(self, root: Path, home: Path) -> None:
        self.root, self.home = root, home
        self.port = free_port()
        # Successful ones, and how many channels they have opened.
        self.logins = self.channels = 0
        self._host_key = asyncssh.generate_private_key("ssh-ed25519")
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        ssh = home / ".ssh"
        ssh.mkdir(mode=0o700, parents=True)
        key = asyncssh.generate_private_key("ssh-ed25519")
        key.write_private_key(ssh / "id_ed25519")
        (ssh / "authorized_keys").write_bytes(key.export_public_key())
        self.start()

    @property
    def url(self) -> str:
        return f"sftp://127.0.0.1:{self.port}"

    def know(self, key: str | None = None) -> None:
        """Write its key, or another, where OpenSSH has those of known hosts."""
        key = key or self._host_key.export_public_key().decode()
        (self.home / ".ssh/known_hosts").write_text(f"[127.0.0.1]:{self.port} {key}")

    def start(self) -> None:
        self._listener = self._run(self._listen())

    def cut(self, *, channels_only: bool = False) -> None:
        """End all connections at once, or the processes that serve files to them."""
        for each in self._files if channels_only else list(self._open):
            self._loop.call_soon_threadsafe(each.abort)

    def stop(self) -> None:
        self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, call):  # type: ignore[no-untyped-def]
        return asyncio.run_coroutine_threadsafe(call, self._loop).result(30)

    async def _close(self) -> None:
        """On the loop. From another thread, it and the end of the last connection could both wake its waiters."""
        self._listener.close()
        for each in list(self._open):
            each.abort()
        await self._listener.wait_closed()

    async def _listen(self) -> asyncssh.SSHAcceptor:
        self._open: set[asyncssh.SSHServerConnection] = set()
        self._files: list[asyncssh.SSHServerChannel] = []
        server = self

        class Counted(asyncssh.SSHServer):
            def connection_made(self, connection: asyncssh.SSHServerConnection) -> None:
                self.connection = connection
                server._open.add(connection)

            def connection_lost(self, _: object) -> None:
                server._open.discard(self.connection)

            def auth_completed(self) -> None:
                server.logins += 1

        class Channel(asyncssh.SFTPServer):
            def __init__(self, channel: asyncssh.SSHServerChannel) -> None:
                super().__init__(channel, chroot=bytes(server.root))
                server.channels += 1
                server._files.append(channel)

        return await asyncssh.listen(
            "127.0.0.1",
            self.port,
            server_factory=Counted,
            server_host_keys=[self._host_key],
            authorized_client_keys=str(self.home / ".ssh/authorized_keys"),
            sftp_factory=Channel,
        )


@contextmanager
def sftp_server(root: Path, home: Path, patch: pytest.MonkeyPatch) -> Iterator[SftpServer]:
    """A server whose key is not known yet; the user's files of SSH are below `home`."""
    patch.setenv("HOME", str(home))
    patch.delenv("SSH_AUTH_SOCK", raising=False)
    server = SftpServer(root, home)
    try:
        yield server
    finally:
        server.stop()
