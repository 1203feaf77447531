"""One request for a range of a file, as each kind of store answers it.

A store is asked for the version that is wanted where it can be, so that no read mixes bytes of two versions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

from touchfs.source.fingerprint import Fingerprint
from touchfs.source.remote.protocols import Place
from touchfs.source.remote.protocols.azure import AzureRequest
from touchfs.source.remote.protocols.google import GoogleRequest
from touchfs.source.remote.protocols.http import HttpRequest
from touchfs.source.remote.protocols.hugging_face import HuggingFaceRequest
from touchfs.source.remote.protocols.other import OtherRequest
from touchfs.source.remote.protocols.s3 import S3Request
from touchfs.source.remote.protocols.sftp import SftpRequest
from touchfs.source.remote.versions import tells_version


class RangeRequest(Protocol):
    """Asks once for bytes of one version of a file. Raises whatever the client raises, or our errors."""

    @property
    def is_conditional(self) -> bool:
        """True if the reply is of the wanted version; else the version has to be looked at afterwards."""
        ...

    async def read(self, start: int, stop: int) -> bytes | bytearray:
        """The bytes from `start` to `stop`, perhaps fewer or others if the store errs."""
        ...


_REQUESTS: dict[str, Callable[[str, Place, Fingerprint], RangeRequest]] = {
    "s3": S3Request,
    "s3a": S3Request,
    "http": HttpRequest,
    "https": HttpRequest,
    "abfs": AzureRequest,
    "gs": GoogleRequest,
    "hf": HuggingFaceRequest,
    "sftp": SftpRequest,
}


def request_of(url: str, place: Place, version: Fingerprint) -> RangeRequest:
    """The request for ranges of a file. If its store does not tell versions, the request has no condition."""
    version = version if tells_version(version) else replace(version, etag=None)
    return _REQUESTS.get(protocols_of(place.client)[0], OtherRequest)(url, place, version)


def protocols_of(client: Any) -> tuple[str, ...]:
    """The schemes of a client's URLs."""
    protocols: str | tuple[str, ...] = client.protocol
    return (protocols,) if isinstance(protocols, str) else tuple(protocols)
