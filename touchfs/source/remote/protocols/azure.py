"""Azure's blobs. Adlfs passes no condition to a read, so the client that it holds is asked."""

from __future__ import annotations

import logging
from typing import Any, NamedTuple

from touchfs.source.fingerprint import Fingerprint
from touchfs.source.remote.protocols import Place


def azure_client(start: str, settings: dict[str, Any]) -> Any:
    """A client that tries each request once. Its own attempts, also those with missing credentials, would take longer
    than one of ours may, and then nobody knew what is wrong.
    """
    from adlfs import AzureBlobFileSystem

    # Its warnings say in many lines what its errors say.
    logging.getLogger("azure.identity").setLevel(logging.ERROR)
    client = AzureBlobFileSystem(**AzureBlobFileSystem._get_kwargs_from_urls(start) | settings)
    client.service_client._config.retry_policy.total_retries = 0
    return client


class AzureRequest(NamedTuple):
    """A range, with the etag as its condition."""

    url: str
    place: Place
    version: Fingerprint

    @property
    def is_conditional(self) -> bool:
        return self.version.etag is not None

    async def read(self, start: int, stop: int) -> bytes:
        from azure.core import MatchConditions

        container, name, _ = self.place.client.split_path(self.place.path)
        blob = self.place.client.service_client.get_blob_client(container=container, blob=name)
        etag = self.version.etag
        condition = {} if etag is None else {"etag": etag, "match_condition": MatchConditions.IfNotModified}
        stream = await blob.download_blob(offset=start, length=stop - start, **condition)
        data: bytes = await stream.readall()
        return data
