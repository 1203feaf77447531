"""The clients of fsspec: one for each kind of store, options and process.

A client's connections belong to its process and to fsspec's thread in it. A forked child gets clients of its own.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any, NamedTuple

from touchfs.core.errors import MissingExtraError, SourceError, TouchfsError, UsageError
from touchfs.core.extras import install_hint
from touchfs.core.location import Location, kept_queries, with_slash
from touchfs.core.urls import shown
from touchfs.format.braces import parse_braces
from touchfs.posix.bounded_cache import BoundedCache
from touchfs.source.remote.client_errors import reason_of
from touchfs.source.remote.protocols import Place
from touchfs.source.remote.protocols.azure import azure_client
from touchfs.source.remote.protocols.google import google_client
from touchfs.source.remote.protocols.hugging_face import hugging_face_client
from touchfs.source.remote.protocols.redirects import SessionGuard, careful_session
from touchfs.source.remote.protocols.sftp import sftp_client
from touchfs.source.remote.storage_options import StorageOptions, given_options, options_text, start_of

CLIENTS_KEPT = 64
# Some hundred bytes each.
_URLS_KEPT = 4096
_HTTP = frozenset({"http", "https"})
# Extras of ours by scheme.
_EXTRAS = {
    **dict.fromkeys(("http", "https"), "remote"),
    **dict.fromkeys(("s3", "s3a"), "s3"),
    **dict.fromkeys(("gs", "gcs"), "gs"),
    **dict.fromkeys(("az", "abfs", "abfss", "adl"), "az"),
    **dict.fromkeys(("sftp", "ssh"), "sftp"),
    "hf": "hf",
}
# Clients of ours, from the start of a URL and their options.
_OURS: dict[str, Callable[[str, dict[str, Any]], Any]] = {
    "hf": hugging_face_client,
    **dict.fromkeys(("az", "abfs", "abfss"), azure_client),
    **dict.fromkeys(("gs", "gcs"), google_client),
    **dict.fromkeys(("sftp", "ssh"), sftp_client),
}


def resolve(url: str, options: Mapping[str, Any] | None = None, guard: SessionGuard | None = None) -> Place:
    """The client of a URL, and the path in it. Accesses nothing. `options` are used instead of those that
    `give_options` was told.

    Raises UsageError, or MissingExtraError if its client is not installed.
    """
    url = _checked(url)
    given = options_text(options) if options else given_options(url)
    key = _ClientKey(start_of(url), StorageOptions.configured(), given, guard)
    client = _CLIENTS.get(key, lambda: _make_client(key))
    return Place(client, client._strip_protocol(with_query(with_slash(url))))


@lru_cache(_URLS_KEPT)
def _checked(url: str) -> str:
    """The URL as its client gets it. Raises UsageError. Each request asks, and none may wait for a disk."""
    return Location.parse(url).path


def with_query(url: str) -> str:
    """The URL with the query that `keep_query` has taken off it, or off a name with braces that it is a member of."""
    queries = kept_queries()
    query = queries.get(url) or next((query for kept, query in queries.items() if url in _members(kept)), None)
    return url if query is None else f"{url}?{query}"


@lru_cache
def _members(kept: str) -> frozenset[str]:
    """The names that a URL stands for whose braces come after its host."""
    try:
        pattern = parse_braces(kept)
    except UsageError:  # of so many names none is asked for
        return frozenset()
    is_ours = pattern is not None and "/" in pattern.prefix.partition("://")[2]
    return frozenset(pattern or ()) if is_ours else frozenset()


class _ClientKey(NamedTuple):
    """The values for which a client is made: calls with equal ones share it. `given` are options as JSON."""

    start: str
    options: StorageOptions
    given: str
    guard: SessionGuard | None


# The clients of this process.
_CLIENTS: BoundedCache[_ClientKey, Any] = BoundedCache(CLIENTS_KEPT)
# To close a connection of the parent would close it there, too, so a child never lets go of them.
_OF_PARENTS: list[Any] = []


def _forked() -> None:
    _OF_PARENTS.append(_CLIENTS.items())
    _CLIENTS.forget()


os.register_at_fork(after_in_child=_forked)


def _make_client(key: _ClientKey) -> Any:
    try:
        import fsspec
    except ImportError as error:
        raise MissingExtraError(f"reading URLs needs the remote extra: `{install_hint('remote')}`") from error
    scheme = key.start.partition("://")[0]
    settings = _settings(key)
    try:
        if scheme in _OURS:
            return _OURS[scheme](key.start, settings)
        # Not `url_to_fs`, which takes `http://[::1]` for a chain of URLs.
        kind = fsspec.get_filesystem_class(scheme)
        client = kind(**(kind._get_kwargs_from_urls(key.start) | settings))
    except ImportError as error:
        if (extra := _EXTRAS.get(scheme)) is None:
            raise MissingExtraError(f"{shown(key.start)}: {error}") from error
        message = f"reading {scheme}:// needs the {extra} extra: `{install_hint(extra)}`"
        raise MissingExtraError(message, path=key.start) from error
    except TouchfsError:
        raise
    except Exception as error:  # each client has errors of its own for options and credentials
        raise SourceError(f"no client for it: {reason_of(error)}", path=key.start) from error
    return client


def _settings(key: _ClientKey) -> dict[str, Any]:
    """The options of a client; if it speaks HTTP, with the rule for redirects."""
    scheme = key.start.partition("://")[0]
    settings: dict[str, Any] = key.options.of(scheme) | json.loads(key.given)
    # A listing must show what is there now.
    settings |= {"use_listings_cache": False, "skip_instance_cache": True}
    if scheme in _HTTP:
        return settings | {"get_client": partial(careful_session, key.guard)}
    return settings
