"""The clients of fsspec: one for each kind of store, options and process.

A client's connections belong to its process and to fsspec's thread in it. A forked child gets clients of its own.
"""

from __future__ import annotations

import json
import os
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from touchfs.errors import ChangedError, MissingExtraError, NotFoundError, SourceError, SourceTimeoutError, TouchfsError
from touchfs.posix.paths import check_url, shown, with_query, without_secrets
from touchfs.source.remote.options import StorageOptions, given_options, start_of
from touchfs.source.remote.redirects import careful_session

CLIENTS_KEPT = 64
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


class Place(NamedTuple):
    """A client, and the path of a file or directory in its own notation."""

    client: Any
    path: str


def resolve(url: str) -> Place:
    """The client of a URL, and the path in it. Accesses nothing.

    Raises UsageError, or MissingExtraError if its client is not installed.
    """
    check_url(url)
    start, chained = start_of(url), "".join(url.partition("::")[1:])
    client = _CLIENTS.get(start, chained, StorageOptions.configured(), given_options(url))
    return Place(client, client._strip_protocol(with_query(url)))


class _Clients:
    """The clients of this process, the least recently used first."""

    def __init__(self) -> None:
        self._clients: OrderedDict[tuple[str, str, StorageOptions, str], Any] = OrderedDict()
        self._lock = threading.Lock()
        # To close a connection of the parent would close it there, too, so a child never lets go of them.
        self._of_parent: list[Any] = []
        os.register_at_fork(after_in_child=self._forked)

    def get(self, start: str, chained: str, options: StorageOptions, given: str) -> Any:
        key = start, chained, options, given
        with self._lock:
            if (client := self._clients.get(key)) is None:
                client = self._clients[key] = _make_client(*key)
                if len(self._clients) > CLIENTS_KEPT:
                    self._clients.popitem(last=False)
            self._clients.move_to_end(key)
            return client

    def _forked(self) -> None:
        self._of_parent.append(self._clients)
        self._clients = OrderedDict()
        self._lock = threading.Lock()


_CLIENTS = _Clients()


def _make_client(start: str, chained: str, options: StorageOptions, given: str) -> Any:
    try:
        import fsspec.core
    except ImportError as error:
        raise MissingExtraError("reading URLs needs the remote extra: `pip install 'touchfs[remote]'`") from error
    url = start + chained
    try:
        client, _ = fsspec.core.url_to_fs(url, **_settings(start, chained, options, given))
    except ImportError as error:
        scheme = start.partition("://")[0]
        if (extra := _EXTRAS.get(scheme)) is None:
            raise MissingExtraError(f"{shown(start)}: {error}") from error
        message = f"reading {scheme}:// needs the {extra} extra: `pip install 'touchfs[{extra}]'`"
        raise MissingExtraError(message, path=shown(start)) from error
    except TouchfsError:
        raise
    except Exception as error:  # each client has errors of its own for options and credentials
        raise SourceError(f"no client for it: {reason_of(error)}", path=shown(url)) from error
    return client


def _settings(start: str, chained: str, options: StorageOptions, given: str) -> dict[str, Any]:
    """The options of a client; if it or what it is in speaks HTTP, with the rule for redirects."""
    scheme = start.partition("://")[0]
    settings: dict[str, Any] = options.of(scheme) | json.loads(given)
    # A listing must show what is there now.
    settings |= {"use_listings_cache": False, "skip_instance_cache": True}
    if scheme in _HTTP:
        return settings | {"get_client": careful_session}
    within = {each for each in _HTTP if f"::{each}://" in chained}
    return settings | {each: {"get_client": careful_session} for each in within}


@contextmanager
def converted_errors(url: str) -> Iterator[None]:
    """Turn what fsspec and its clients raise into our errors. Their clients have classes of their own for the same."""
    try:
        yield
    except TouchfsError:
        raise
    except FileNotFoundError as error:
        raise NotFoundError("no such file or directory", path=shown(url)) from error
    except TimeoutError as error:
        raise SourceTimeoutError("the store does not answer in time", path=shown(url)) from error
    except PermissionError as error:
        raise SourceError("the store allows no access: are its credentials set?", path=shown(url)) from error
    except Exception as error:
        raise SourceError(f"cannot be read: {reason_of(error)}", path=shown(url)) from error


def changed_error(url: str) -> ChangedError:
    """The error of a file that is no longer the one that was indexed or opened."""
    return ChangedError("was replaced or changed since it was indexed", path=shown(url))


def reason_of(error: BaseException) -> str:
    """One line about an error, without the secrets of URLs in it."""
    return without_secrets(" ".join(str(error).split())) or type(error).__name__
