"""All other stores, by what every client of fsspec can do."""

from __future__ import annotations

from typing import NamedTuple

from touchfs.source.fingerprint import Fingerprint
from touchfs.source.remote.calls import in_thread
from touchfs.source.remote.protocols import Place


class OtherRequest(NamedTuple):
    """A client that knows no conditions."""

    url: str
    place: Place
    version: Fingerprint

    @property
    def is_conditional(self) -> bool:
        return False

    async def read(self, start: int, stop: int) -> bytes:
        client, path = self.place
        if client.async_impl:
            data: bytes = await client._cat_file(path, start, stop)
            return data
        return bytes(await in_thread(client.cat_file, path, start, stop))
