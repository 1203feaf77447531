"""HTTP clients of fsspec that stay below a location.

aiohttp follows redirects, and sends headers that the user gave for one host to the next one. It calls a trace before it
follows one, and a trace may refuse. A trace also sees a reply's header before the body is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from touchfs.errors import LocationError
from touchfs.items.located.addresses import Address, parse_address

if TYPE_CHECKING:
    from types import SimpleNamespace

    import aiohttp

_OK, _PARTIAL, _REDIRECTED = 200, 206, 300


class NoRangesError(OSError):
    """The server sends the whole file when asked for a range of it."""


def guarded_options(options: Mapping[str, Any], location: Address, limit: int) -> dict[str, Any]:
    """Return fsspec's options for a client that stays below a location and takes no reply of over `limit` bytes."""
    import aiohttp

    trace = aiohttp.TraceConfig()

    async def refuse_redirect(
        session: aiohttp.ClientSession, context: SimpleNamespace, sent: aiohttp.TraceRequestRedirectParams
    ) -> None:
        found = sent.response.headers.get("Location") or sent.response.headers.get("URI") or ""
        target = str(sent.response.url.join(type(sent.url)(found)))
        if not parse_address(target).is_below(location):
            raise LocationError(f"redirects to {target}, which is not below the same location", path=str(sent.url))

    async def check_reply(
        session: aiohttp.ClientSession, context: SimpleNamespace, sent: aiohttp.TraceRequestEndParams
    ) -> None:
        if sent.method != "GET":
            return
        reply = sent.response
        if not _OK <= reply.status < _REDIRECTED:
            raise OSError(f"{sent.url}: the server answers {reply.status} {reply.reason}")
        if (reply.content_length or 0) > limit:
            raise OSError(f"{sent.url}: the reply has over {limit:,} bytes")
        # The client reads the reply to a range as a whole, and decodes it: so its size must be known, and be that.
        is_range = reply.status == _PARTIAL and reply.content_length is not None
        if "Range" in sent.headers and not (is_range and "Content-Encoding" not in reply.headers):
            raise NoRangesError(f"{sent.url}: the server sends no ranges")

    trace.on_request_redirect.append(refuse_redirect)
    trace.on_request_end.append(check_reply)
    client = dict(options.get("client_kwargs") or {})
    client["trace_configs"] = [*client.get("trace_configs", ()), trace]
    return {**options, "client_kwargs": client, "skip_instance_cache": True}
