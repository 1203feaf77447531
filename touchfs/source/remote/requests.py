"""One request for a range of a file, as each kind of store answers it.

A store is asked for the version that is wanted where it can be: S3 and HTTP take its etag as a condition (`If-Match`,
RFC 9110 section 13.1.1). An HTTP server must also say that it sent this range: many ignore one, and send the file.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from touchfs.errors import SourceError
from touchfs.posix.paths import shown
from touchfs.source.fingerprint import Fingerprint
from touchfs.source.remote.calls import in_thread
from touchfs.source.remote.clients import Place, changed_error

PARTIAL, FORBIDDEN, MISSING, CHANGED, TOO_MANY, SERVER_ERROR = 206, 403, 404, 412, 429, 500
# aiohttp stops reading a socket at twice its buffer, which is 64 KiB by default.
READ_BUFFER = 1 << 20
# Classes of errors of connections that are no OSError: of aiohttp, botocore, Azure's client and paramiko. Their other
# errors, as of missing credentials, do not pass.
_CONNECTION_ERRORS = frozenset(
    ("ClientConnectionError", "ClientPayloadError", "HTTPClientError", "ServiceRequestError", "SSHException")
)
_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)")


class RangeRequest(Protocol):
    """Asks once for bytes of one version of a file. Raises whatever the client raises, or our errors."""

    @property
    def is_conditional(self) -> bool:
        """True if the reply is of the wanted version; else the version has to be looked at afterwards."""
        ...

    async def read(self, start: int, stop: int) -> bytes | bytearray:
        """The bytes from `start` to `stop`, perhaps fewer or others if the store errs."""
        ...


class S3Request(NamedTuple):
    """S3, and what speaks its protocol."""

    url: str
    place: Place
    version: Fingerprint

    @property
    def is_conditional(self) -> bool:
        """See `RangeRequest`."""
        return self.version.etag is not None

    async def read(self, start: int, stop: int) -> bytes:
        """See `RangeRequest`."""
        bucket, key, _ = self.place.client.split_path(self.place.path)
        condition = {} if self.version.etag is None else {"IfMatch": self.version.etag}
        reply = await self.place.client._call_s3(
            "get_object", Bucket=bucket, Key=key, Range=f"bytes={start}-{stop - 1}", **condition
        )
        async with reply["Body"] as body:
            data: bytes = await body.read()
        return data


class HttpRequest(NamedTuple):
    """An HTTP server."""

    url: str
    place: Place
    version: Fingerprint

    @property
    def is_conditional(self) -> bool:
        """See `RangeRequest`. A weak etag is no condition for ranges."""
        return self.version.etag is not None and self.version.etag.startswith('"')

    async def read(self, start: int, stop: int) -> bytearray:
        """See `RangeRequest`."""
        client = self.place.client
        session = await client.set_session()
        headers = {**client.kwargs.get("headers", {}), "Range": f"bytes={start}-{stop - 1}"}
        headers["Accept-Encoding"] = "identity"  # ranges are those of the file, not of a compressed form of it
        if self.is_conditional:
            headers["If-Match"] = self.version.etag
        arguments = {**client.kwargs, "headers": headers, "read_bufsize": READ_BUFFER}
        async with session.get(client.encode_url(self.place.path), **arguments) as reply:
            if reply.status == CHANGED:
                raise changed_error(self.url)
            reply.raise_for_status()
            etag = reply.headers.get("ETag")
            if self.version.etag is not None and etag is not None and etag != self.version.etag:
                raise changed_error(self.url)
            if reply.status != PARTIAL:
                raise SourceError("the server sends no ranges of files: copy it to this machine", path=shown(self.url))
            sent = _CONTENT_RANGE.fullmatch(reply.headers.get("Content-Range", ""))
            if sent is None or (int(sent[1]), int(sent[2])) != (start, stop - 1):
                raise OSError(f"the server sends another range: {reply.headers.get('Content-Range')}")
            if sent[3] not in ("*", str(self.version.size)):
                raise changed_error(self.url)
            data, filled = bytearray(stop - start), 0
            while filled < len(data) and (more := await reply.content.readany()):
                data[filled : filled + len(more)] = more  # bytes too many make it longer, which is an error
                filled += len(more)
            return data if filled == len(data) else data[:filled]


class OtherRequest(NamedTuple):
    """A client that knows no conditions."""

    url: str
    place: Place
    version: Fingerprint

    @property
    def is_conditional(self) -> bool:
        """See `RangeRequest`."""
        return False

    async def read(self, start: int, stop: int) -> bytes:
        """See `RangeRequest`."""
        client, path = self.place
        if client.async_impl:
            data: bytes = await client._cat_file(path, start, stop)
            return data
        return bytes(await in_thread(client.cat_file, path, start, stop))


_REQUESTS: dict[str, Callable[[str, Place, Fingerprint], RangeRequest]] = {
    "s3": S3Request,
    "s3a": S3Request,
    "http": HttpRequest,
    "https": HttpRequest,
}


def request_of(url: str, place: Place, version: Fingerprint) -> RangeRequest:
    """How ranges of a file are asked for."""
    return _REQUESTS.get(protocols_of(place.client)[0], OtherRequest)(url, place, version)


def protocols_of(client: Any) -> tuple[str, ...]:
    """The schemes of a client's URLs."""
    protocols: str | tuple[str, ...] = client.protocol
    return (protocols,) if isinstance(protocols, str) else tuple(protocols)


def may_pass(error: Exception) -> bool:
    """True if the same request may succeed later."""
    status = http_status(error)
    if status is not None:
        return status >= SERVER_ERROR or status == TOO_MANY
    names = {kind.__name__ for kind in type(error).__mro__}
    return isinstance(error, OSError | EOFError) or not names.isdisjoint(_CONNECTION_ERRORS)


def http_status(error: BaseException) -> int | None:
    """The HTTP status that an error is about, if there is one: aiohttp and botocore have it in different places."""
    for each in (error, error.__cause__):
        status = getattr(each, "status", None)
        response = getattr(each, "response", None)
        if status is None and isinstance(response, dict):
            status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
        if isinstance(status, int):
            return status
    return None
