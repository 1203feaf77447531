"""Check the answers of web servers about items that data names.

`touchfs.source.remote` has rules for redirects. Besides, an answer must not lead out of the location that was allowed,
and it must not be longer than a limit.

aiohttp calls a trace before it follows a redirect, and before it reads the body of a reply. A trace may refuse both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from touchfs.core.errors import LocationError, SourceError
from touchfs.core.urls import shown
from touchfs.limits import too_large
from touchfs.source.named.addresses import Address, parse_address
from touchfs.source.remote.protocols.redirects import SessionGuard

if TYPE_CHECKING:
    from types import SimpleNamespace

    import aiohttp

_PARTIAL = 206


class NoRangesError(SourceError):
    """The server sends the whole file when asked for a range of it."""


@dataclass(frozen=True, slots=True)
class LocationGuard:
    """Refuses redirects that leave a location, and replies of over `limit` bytes."""

    location: Address
    limit: int

    def trace(self) -> aiohttp.TraceConfig:
        import aiohttp

        trace = aiohttp.TraceConfig()
        trace.on_request_redirect.append(self._check_redirect)
        trace.on_request_end.append(self._check_reply)
        return trace

    async def _check_redirect(
        self, session: aiohttp.ClientSession, context: SimpleNamespace, sent: aiohttp.TraceRequestRedirectParams
    ) -> None:
        reply = sent.response
        target = str(reply.url.join(type(sent.url)(reply.headers.get("Location") or reply.headers.get("URI") or "")))
        if not parse_address(target).is_below(self.location):
            reply.close()
            message = f"redirects to {shown(target)}, which is not below the same location"
            raise LocationError(message, path=str(sent.url))

    async def _check_reply(
        self, session: aiohttp.ClientSession, context: SimpleNamespace, sent: aiohttp.TraceRequestEndParams
    ) -> None:
        if sent.method != "GET":
            return
        reply, url = sent.response, shown(str(sent.url))
        reply.raise_for_status()
        if (reply.content_length or 0) > self.limit:
            reply.close()
            raise SourceError(too_large(self.limit), path=url)
        # The client reads the reply to a range as a whole, and decodes it: so its size must be known, and be that.
        is_range = reply.status == _PARTIAL and reply.content_length is not None
        if "Range" in sent.headers and not (is_range and "Content-Encoding" not in reply.headers):
            reply.close()
            raise NoRangesError("the server sends no ranges", path=url)


if TYPE_CHECKING:
    _: type[SessionGuard] = LocationGuard
