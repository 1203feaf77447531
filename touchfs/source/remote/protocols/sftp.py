"""Files over SSH."""

from __future__ import annotations

from typing import Any, NamedTuple

from touchfs.source.fingerprint import Fingerprint
from touchfs.source.remote.client_errors import changed_error
from touchfs.source.remote.protocols import Place


def sftp_client(start: str, settings: dict[str, Any]) -> Any:
    """The client for `sftp://host:port`."""
    from fsspec.utils import infer_storage_options

    from touchfs.source.remote.protocols.sftp_client import SftpClient

    named = infer_storage_options(start)
    port = {"port": named["port"]} if "port" in named else {}
    return SftpClient(named["host"], **port | settings)


class SftpRequest(NamedTuple):
    """A range of a file that stays the same while it is open. It has changed if its size or time has."""

    url: str
    place: Place
    version: Fingerprint

    @property
    def is_conditional(self) -> bool:
        return True

    async def read(self, start: int, stop: int) -> bytes:
        client, path = self.place
        async with client.files() as files, files.open(path, "rb") as file:
            data = await file.read(stop - start, start)
            status = await file.stat()
        if (status.size, status.mtime * 1_000_000_000) != (self.version.size, self.version.mtime_ns):
            raise changed_error(self.url)
        return bytes(data)
