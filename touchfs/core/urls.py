"""URLs as text: names of what is in an archive, what of a URL may be shown, and steps that lead out.

What is in an archive has a name as fsspec writes it, and one in a form that paths can be made of:

    zip://train/a.tar::s3://bucket/all.zip     what a user writes and sees: a chain
    zip+s3://bucket/all.zip!/train/a.tar       the same file, by a path to which names can be joined

The archive is a URL or a local path, in the path form `zip+file:///data/all.zip!`. What comes first in a chain may be
empty: that is the archive's root.
"""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import unquote

_KIND = "zip"
_CHAIN = re.compile(r"zip://(.*?)::(.+)", re.DOTALL | re.IGNORECASE)
_PATH = re.compile(r"zip\+([a-z][a-z0-9+.-]*://.*?)!(?:/(.*))?", re.DOTALL)
_LOCAL = "file://"
_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]+://")
# User information before the host, and what follows the path: a signature or a token may be in either.
USER = re.compile(r"(?<=://)[^/@\s]*@")
QUERY = re.compile(r"[?#][^\s]*")
# In a message: a URL, and a query whose URL was cut off.
_IN_TEXT = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]+://[^\s'\"]+")
_LOOSE_QUERY = re.compile(r"\?[^\s'\"]*=[^\s'\"]*")


class InArchive(NamedTuple):
    """A name in an archive, which is a local path or a URL. The name has no slash at its start or end."""

    archive: str
    name: str

    @property
    def path(self) -> str:
        """The form that names can be joined to."""
        start = self.archive if "://" in self.archive else _LOCAL + self.archive
        return f"{_KIND}+{start}!" + (f"/{self.name}" if self.name else "")

    @property
    def chain(self) -> str:
        return f"{_KIND}://{self.name}::{self.archive}"


def parse_in_archive(path: str) -> InArchive | None:
    """The archive and the name in it, of either form; None of another path."""
    if (match := _CHAIN.fullmatch(path)) is not None:
        name, archive = match.groups()
    elif (match := _PATH.fullmatch(path)) is not None:
        archive, name = match[1], match[2] or ""
    else:
        return None
    return InArchive(archive.removeprefix(_LOCAL), name.strip("/"))


def shown(url: str) -> str:
    """The URL as it may be shown, logged and stored: without user, password, query and fragment."""
    if not _SCHEME.match(url):
        return url
    if (place := parse_in_archive(url)) is not None:
        return InArchive(shown(place.archive), place.name).chain
    return QUERY.sub("", USER.sub("", url))


def without_secrets(text: str) -> str:
    """A message of a library without the users and queries of the URLs in it, and of parts of URLs."""
    return _LOOSE_QUERY.sub("?…", _IN_TEXT.sub(lambda url: shown(url[0]), text))


def climbs(path: str) -> bool:
    """True if a path in a URL may lead out of its directory: has a step `..`, also one with escapes, as `%2e%2e`.

    Clients of HTTP decode the escapes of dots, and then remove the step.
    """
    return ".." in re.split(r"[/\\]", unquote(path))
