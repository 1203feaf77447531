"""Web servers. They must say that they sent the range: many ignore one, and send the whole file."""

from __future__ import annotations

import re
from typing import NamedTuple

from touchfs.core.errors import SourceError
from touchfs.source.fingerprint import Fingerprint
from touchfs.source.remote.client_errors import changed_error
from touchfs.source.remote.protocols import Place

_PARTIAL, _CHANGED = 206, 412
# aiohttp stops reading a socket at twice its buffer, which is 64 KiB by default.
READ_BUFFER = 1 << 20
_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)")


class HttpRequest(NamedTuple):
    """A range, with the etag as its condition (`If-Match`, RFC 9110 section 13.1.1)."""

    url: str
    place: Place
    version: Fingerprint

    @property
    def is_conditional(self) -> bool:
        """See `RangeRequest`. A weak etag is no condition for ranges."""
        return self.version.etag is not None and self.version.etag.startswith('"')

    async def read(self, start: int, stop: int) -> bytearray:
        client = self.place.client
        session = await client.set_session()
        headers = {**client.kwargs.get("headers", {}), "Range": f"bytes={start}-{stop - 1}"}
        headers["Accept-Encoding"] = "identity"  # ranges are those of the file, not of a compressed form of it
        if self.is_conditional:
            headers["If-Match"] = self.version.etag
        arguments = {**client.kwargs, "headers": headers, "read_bufsize": READ_BUFFER}
        async with session.get(client.encode_url(self.place.path), **arguments) as reply:
            if reply.status == _CHANGED:
                raise changed_error(self.url)
            reply.raise_for_status()
            etag = reply.headers.get("ETag")
            if self.version.etag is not None and etag is not None and etag != self.version.etag:
                raise changed_error(self.url)
            if reply.status != _PARTIAL:
                raise SourceError("the server sends no ranges of files: copy it to this machine", path=self.url)
            sent = _CONTENT_RANGE.fullmatch(reply.headers.get("Content-Range", ""))
            if sent is None or (int(sent[1]), int(sent[2])) != (start, stop - 1):
                raise OSError(f"the server sends another range: {reply.headers.get('Content-Range')}")
            if sent[3] not in ("*", str(self.version.size)):
                raise changed_error(self.url)
            data = bytearray()  # one of the final size would first be zeroed
            async for more, _ in reply.content.iter_chunks():  # which joins none of them, as other methods do
                data += more
                if len(data) > stop - start:  # bytes too many are an error, also in a chunk of their own
                    break
            return data
