"""S3, and what speaks its protocol."""

from __future__ import annotations

from typing import NamedTuple

from touchfs.source.fingerprint import Fingerprint
from touchfs.source.remote.protocols import Place


class S3Request(NamedTuple):
    """A range, with the etag as its condition (`If-Match`, RFC 9110 section 13.1.1)."""

    url: str
    place: Place
    version: Fingerprint

    @property
    def is_conditional(self) -> bool:
        return self.version.etag is not None

    async def read(self, start: int, stop: int) -> bytes:
        bucket, key, _ = self.place.client.split_path(self.place.path)
        condition = {} if self.version.etag is None else {"IfMatch": self.version.etag}
        reply = await self.place.client._call_s3(
            "get_object", Bucket=bucket, Key=key, Range=f"bytes={start}-{stop - 1}", **condition
        )
        async with reply["Body"] as body:
            data: bytes = await body.read()
        return data
