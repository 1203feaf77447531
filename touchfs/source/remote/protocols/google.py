"""Google's store. Its versions have a number, the generation, which a read can name as its condition."""

from __future__ import annotations

from typing import Any, NamedTuple

from touchfs.source.fingerprint import Fingerprint
from touchfs.source.remote.client_errors import changed_error
from touchfs.source.remote.protocols import Place


def google_client(_: str, settings: dict[str, Any]) -> Any:
    """The client of the JSON API. A newer one asks for the kind of each bucket by gRPC, which survives no fork."""
    from gcsfs.core import GCSFileSystem

    return GCSFileSystem(**settings)


class GoogleRequest(NamedTuple):
    """A range, with the generation as its condition: cloud.google.com/storage/docs/request-preconditions."""

    url: str
    place: Place
    version: Fingerprint

    @property
    def is_conditional(self) -> bool:
        return self.version.etag is not None and self.version.etag.isdecimal()

    async def read(self, start: int, stop: int) -> bytes:
        client = self.place.client
        condition = f"&ifGenerationMatch={self.version.etag}" if self.is_conditional else ""
        headers = {"Range": f"bytes={start}-{stop - 1}"}
        try:
            _, data = await client._call("GET", client.url(self.place.path) + condition, headers=headers)
        except FileExistsError as error:  # so gcsfs calls the status 412
            raise changed_error(self.url) from error
        return bytes(data)
