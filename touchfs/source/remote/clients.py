"""The clients of fsspec: one for each kind of store, options and process.

A client's connections belong to its process and to fsspec's thread in it. A forked child gets clients of its own.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, NamedTuple

from touchfs.errors import ChangedError, MissingExtraError, NotFoundError, SourceError, SourceTimeoutError, TouchfsError
from touchfs.posix.paths import check_url, shown, with_query
from touchfs.source.remote.options import StorageOptions

CLIENTS_KEPT = 64
# Extras of ours by scheme.
_EXTRAS = {
    **dict.fromkeys(("http", "https"), "remote"),
    **dict.fromkeys(("s3", "s3a"), "s3"),
    **dict.fromkeys(("gs", "gcs"), "gs"),
    **dict.fromkeys(("az", "abfs", "abfss", "adl"), "az"),
    **dict.fromkeys(("sftp", "ssh"), "sftp"),
    "hf": "hf",
}
_URL = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]+://\S+")


class Place(NamedTuple):
    """A client, and the path of a file or directory in its own notation."""

    client: Any
    path: str


def resolve(url: str) -> Place:
    """The client of a URL, and the path in it. Accesses nothing.

    Raises UsageError, or MissingExtraError if its client is not installed.
    """
    check_url(url)
    client, strip = _client(os.getpid(), *_split(url), StorageOptions.configured())
    return Place(client, strip(with_query(url)))


def _split(url: str) -> tuple[str, str]:
    """What decides about the client: the scheme with the host, and behind `::` the URL that another one is in."""
    first, chained, rest = url.partition("::")
    scheme, _, path = first.partition("://")
    return f"{scheme}://{path.partition('/')[0]}", chained + rest


@lru_cache(CLIENTS_KEPT)
def _client(process: int, start: str, chained: str, options: StorageOptions) -> tuple[Any, Callable[[str], str]]:
    try:
        import fsspec.core
    except ImportError as error:
        raise MissingExtraError("reading URLs needs the remote extra: `pip install 'touchfs[remote]'`") from error
    url = start + chained
    try:
        # A listing must show what is there now.
        client, _ = fsspec.core.url_to_fs(
            url, use_listings_cache=False, skip_instance_cache=True, **options.of(start.partition("://")[0])
        )
    except ImportError as error:
        scheme = start.partition("://")[0]
        if (extra := _EXTRAS.get(scheme)) is None:
            raise MissingExtraError(f"{shown(start)}: {error}") from error
        message = f"reading {scheme}:// needs the {extra} extra: `pip install 'touchfs[{extra}]'`"
        raise MissingExtraError(message, path=shown(start)) from error
    except (ValueError, TypeError) as error:
        raise SourceError(f"no client for it: {error}", path=shown(url)) from error
    return client, client._strip_protocol


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
        raise SourceTimeoutError("the store does not answer", path=shown(url)) from error
    except PermissionError as error:
        raise SourceError("the store allows no access: are its credentials set?", path=shown(url)) from error
    except Exception as error:
        raise SourceError(f"cannot be read: {reason_of(error)}", path=shown(url)) from error


def changed_error(url: str) -> ChangedError:
    """The error of a file that is no longer the one that was indexed or opened."""
    return ChangedError("was replaced or changed since it was indexed", path=shown(url))


def reason_of(error: BaseException) -> str:
    """One line about an error, without the secrets of URLs in it."""
    text = _URL.sub(lambda url: shown(url[0]), " ".join(str(error).split()))
    return text or type(error).__name__
