"""Addresses in other stores, such as `s3://bucket/key` and `https://host/path`, compared part by part.

A prefix of characters would be too little: `http://host.evil/` begins with `http://host`, and `http://host/a/../b` is
not below `http://host/a`.
"""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import unquote

from touchfs.core.errors import ArgumentValueError, LocationError
from touchfs.core.urls import without_secrets

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
# Some parsers of URLs drop blanks and control characters, or take a backslash for a slash. Keys of other stores may
# have blanks and backslashes.
_UNSAFE_URL, _UNSAFE_KEY = re.compile(r"[\x00-\x20\x7f\\]"), re.compile(r"[\x00-\x1f\x7f]")
# fsspec's names for files of this machine. Their paths are given as such, and opened by us.
_LOCAL = frozenset(("file", "local"))
HTTP = frozenset(("http", "https"))


class Address(NamedTuple):
    """A scheme in lower case, and what follows `://`, split at slashes; of a URL, the first part is the host."""

    scheme: str
    parts: tuple[str, ...]

    def is_below(self, location: Address) -> bool:
        return self.scheme == location.scheme and self.parts[: len(location.parts)] == location.parts

    @property
    def origin(self) -> Address:
        return Address(self.scheme, self.parts[:1])


def is_address(path: str) -> bool:
    """True if a path begins with a scheme, as `https:`, `file:` or `data:`."""
    return _SCHEME.match(path) is not None


def parse_address(url: str) -> Address:
    """Return the parts of an address. Raises LocationError if it may mean something else to another parser."""
    found = _SCHEME.match(url)
    if found is None or not url.startswith("//", found.end()):
        raise LocationError("is not a URL with `://`", path=without_secrets(url))
    scheme, rest = found[1].lower(), url[found.end() + 2 :]
    if scheme in _LOCAL:
        raise LocationError(
            "is a URL of a local file, and data may only name those by their paths", path=without_secrets(url)
        )
    if "::" in url or scheme.startswith("zip+"):
        raise LocationError("is a chain of URLs, which data may not name", path=without_secrets(url))
    if (_UNSAFE_URL if scheme in HTTP else _UNSAFE_KEY).search(url):
        raise LocationError("has characters that are not safe in an address", path=repr(without_secrets(url)))
    if scheme in HTTP:
        rest = re.split("[?#]", rest, maxsplit=1)[0]
        host, slash, path = rest.partition("/")
        if not host:
            raise LocationError("has no host", path=without_secrets(url))
        rest = host.lower() + slash + path
    parts = tuple(rest.lstrip("/").rstrip("/").split("/"))
    if any(step in (".", "..") for part in parts for step in re.split(r"[/\\]", unquote(part))):
        raise LocationError("has `.` or `..` in its path", path=without_secrets(url))
    return Address(scheme, () if parts == ("",) else parts)


def parse_location(url: str) -> Address:
    """Like `parse_address`, for a location that the user gives. Raises ArgumentValueError."""
    try:
        return parse_address(url)
    except LocationError as error:
        raise ArgumentValueError(f"{error.message}: it cannot be an allowed location", path=error.path) from error
