"""Names of what is in an archive, as fsspec writes them, and in a form that paths can be made of.

    zip://train/a.tar::s3://bucket/all.zip     what a user writes and sees: a chain
    zip+s3://bucket/all.zip!/train/a.tar       the same file, by a path to which names can be joined

The archive is a URL or a local path, in the path form `zip+file:///data/all.zip!`. What comes first in a chain may be
empty: that is the archive's root.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_KIND = "zip"
_CHAIN = re.compile(r"zip://(.*?)::(.+)", re.DOTALL | re.IGNORECASE)
_PATH = re.compile(r"zip\+([a-z][a-z0-9+.-]*://.*?)!(?:/(.*))?", re.DOTALL)
_LOCAL = "file://"


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
        """The form of fsspec."""
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
