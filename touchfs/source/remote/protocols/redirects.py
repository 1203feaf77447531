"""Redirects of web servers: which are followed, and what goes along.

A server that says "it is there" is data, not the user, so it must not send us to what only this machine reaches: other
ports of it, the network behind it, the metadata address of a cloud. To the same host and port a redirect is followed,
and to the same host by https instead of http. To another host only by https, and only to addresses of the public
internet; storage behind a CDN needs that. A redirect to another host gets none of the user's headers.

An address is checked where the connection is made, so a name cannot have another one by then. A proxy is not used.
"""

from __future__ import annotations

import ipaddress
import os
import socket
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakSet

from touchfs.core.errors import LocationError

if TYPE_CHECKING:
    import aiohttp
    from yarl import URL

# What a range is asked for with. All else may be the user's: keys of an API, cookies.
_OURS = frozenset({"range", "if-match", "accept", "accept-encoding", "user-agent", "host"})
# The sessions of this process, and connections of the process that it was forked from.
_SESSIONS: WeakSet[Any] = WeakSet()
_OF_PARENT: list[Any] = []


class SessionGuard(Protocol):
    """Further rules for the session of a client of HTTP. Equal ones are the same rules."""

    def __hash__(self) -> int: ...

    def trace(self) -> Any:
        """A trace of aiohttp that raises an error for what is refused."""
        ...


async def careful_session(guard: SessionGuard | None = None, **settings: Any) -> aiohttp.ClientSession:
    """A session of aiohttp that follows redirects by these rules, and by those of a guard. It replaces `get_client` of
    fsspec's HTTP client.
    """
    import aiohttp
    from aiohttp.abc import AbstractResolver, ResolveResult
    from yarl import URL

    elsewhere: set[tuple[str, int]] = set()

    class Resolver(AbstractResolver):
        """Refuses addresses that are not public for hosts that only a redirect has named."""

        def __init__(self) -> None:
            self._resolver = aiohttp.DefaultResolver()

        async def resolve(
            self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
        ) -> list[ResolveResult]:
            found = await self._resolver.resolve(host, port, family)
            if (host, port) in elsewhere:
                found = [each for each in found if _is_public(each["host"])]
                if not found:
                    raise _refusal(f"https://{host}")
            return found

        async def close(self) -> None:
            await self._resolver.close()

    async def look(session: object, context: Any, parameters: aiohttp.TraceRequestRedirectParams) -> None:
        reply = parameters.response
        target = reply.url.join(URL(reply.headers.get("Location") or reply.headers.get("URI") or ""))
        if _is_same(reply.url, target):
            return
        if target.scheme != "https" or not target.host or not _may_be_public(target.host):
            reply.close()
            raise _refusal(str(target))
        elsewhere.add((target.host, target.port or 443))
        for name in set(parameters.headers):
            if name.lower() not in _OURS:
                parameters.headers.popall(name, None)

    trace = aiohttp.TraceConfig()
    trace.on_request_redirect.append(look)
    connector = aiohttp.TCPConnector(resolver=Resolver(), limit=0)
    traces = [trace] if guard is None else [trace, guard.trace()]
    session = aiohttp.ClientSession(connector=connector, trace_configs=traces, **settings)
    _SESSIONS.add(session)
    return session


def _forked() -> None:
    """Detach the parent's sessions in a child. Closing one would stop the parent's loop watching its connection."""
    for session in _SESSIONS:
        _OF_PARENT.append(session.connector)
        session.detach()
    _SESSIONS.clear()


os.register_at_fork(after_in_child=_forked)


def _is_same(url: URL, target: URL) -> bool:
    """True if a redirect stays on its server, perhaps from http to https."""
    is_upgrade = (url.scheme, url.port, target.scheme, target.port) == ("http", 80, "https", 443)
    return url.host == target.host and (is_upgrade or (url.scheme, url.port) == (target.scheme, target.port))


def _may_be_public(host: str) -> bool:
    """True for a name, whose addresses are checked when it is connected to, and for a public address."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return True
    return _is_public(host)


def _is_public(address: str) -> bool:
    """True if an address is of the public internet, also one of IPv4 that is written as one of IPv6."""
    parsed = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(parsed, ipaddress.IPv6Address):
        parsed = parsed.ipv4_mapped or parsed.sixtofour or parsed
    return parsed.is_global and not parsed.is_multicast


def _refusal(target: str) -> LocationError:
    return LocationError(
        "a redirect leads here, and is not followed: it is neither to the same server nor to https of a public "
        "address; name this place itself if you trust it",
        path=target,
    )
