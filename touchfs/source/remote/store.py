"""The store of all URLs: listings and looks by the clients of fsspec, and files that are read in blocks."""

from __future__ import annotations

import io
import logging
import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from touchfs.core.errors import NotFoundError, SourceError
from touchfs.core.extent.file_object import FileObject
from touchfs.core.location import Location
from touchfs.core.urls import climbs, shown
from touchfs.source.fingerprint import Fingerprint
from touchfs.source.remote.clients import resolve
from touchfs.source.remote.file import UrlFile
from touchfs.source.remote.ranges import find_below_empty, list_directory, look_status
from touchfs.source.remote.requests import protocols_of
from touchfs.source.remote.versions import status_of
from touchfs.source.store import Status, Store, StoredEntry

log = logging.getLogger(__name__)

# What `stream` reads at once.
_STREAM_BUFFER = 1 << 20
# Files that a warning names.
_NAMED = 3
# Their listings have the same versions as their answers about single files.
_SAME_VERSIONS = frozenset({"s3", "s3a", "gs", "abfs", "hf", "sftp"})
# What is in the name of no file: a step, and the end of a text of C; in links of a page, also a query.
_ELSEWHERE, _QUERY = re.compile(r"^\.{0,2}$|[/\0]"), re.compile(r"[?#]")
# Clients may take these for the end of a path in a URL, or leave them out.
_AMBIGUOUS = re.compile(r"[?#%\t\r\n]")


class _RemoteEntry(NamedTuple):
    name: str
    type: str
    status: Status | None

    def is_file(self) -> bool:
        return self.type == "file"

    def is_dir(self) -> bool:
        return self.type == "directory"


class RemoteStore:
    """Files by URL. Directories are those that the client shows: most stores have none, only names with `/`."""

    def list(self, directory: str) -> Sequence[StoredEntry]:
        """See `Store.list`. A name that would lead elsewhere is left out, or that the client cannot ask for."""
        place = resolve(directory)
        listed = list_directory(directory)
        own = place.path.rstrip("/")
        names = {each["name"].rstrip("/"): each for each in listed}
        if list(names) == [own] and names[own]["type"] == "file":
            raise NotFoundError("not a directory", path=directory)
        # A page of links has others, too: to be sorted differently, and to elsewhere.
        within = {name.removeprefix(own + "/"): each for name, each in names.items() if name.startswith(own + "/")}
        is_page = Location.of(directory).speaks_http
        has_empty = any(each["type"] == "directory" and each["name"].rstrip("/") == own for each in listed)
        if has_empty and place.client.async_impl and not is_page:
            _warn_of_empty_part(directory, own)
        has_status = not _SAME_VERSIONS.isdisjoint(protocols_of(place.client))
        found = []
        for name, each in within.items():
            if _ELSEWHERE.search(name) or climbs(name) or (is_page and _QUERY.search(name)):
                continue
            if is_page or _can_name(directory, name):
                found.append(_RemoteEntry(name, each["type"], status_of(each) if has_status else None))
            else:
                log.warning("%s/%s: left out: the client of its store cannot ask for this name", shown(directory), name)
        return found

    def stat(self, path: str) -> Status:
        return look_status(path)

    def open(self, path: str, fingerprint: Fingerprint | None = None) -> UrlFile:
        return UrlFile(path, fingerprint)

    def open_beneath(self, root: str, path: str, fingerprint: Fingerprint | None = None) -> UrlFile:
        """See `Store.open_beneath`. Stores have no links, so the path decides."""
        parts = path.split("/")
        if path.startswith("/") or "://" in path or climbs(path) or not all(parts) or "." in parts:
            raise SourceError("the path leads out of its directory", path=os.path.join(root, path))
        location = Location.of(root)
        if not (location.speaks_http or _can_name(root, path)):
            raise SourceError("the client of its store cannot ask for this name", path=os.path.join(root, path))
        return UrlFile(location.beneath(path), fingerprint)

    def stream(self, path: str) -> BinaryIO:
        return io.BufferedReader(FileObject(UrlFile(path)), _STREAM_BUFFER)


def _warn_of_empty_part(directory: str, own: str) -> None:
    """Say which files have an empty part in their path, behind this directory: no client lists them as they are."""
    if first := [shown(directory) + path.removeprefix(own) for path in find_below_empty(directory)[:_NAMED]]:
        message = "%s//: left out, as a part of its path is empty: name its files, as %s"
        log.warning(message, shown(directory), ", ".join(first))


def _can_name(directory: str, path: str) -> bool:
    """True if the client of a store asks for this path below a directory, and for no other one."""
    return not _AMBIGUOUS.search(path) or resolve(os.path.join(directory, path)).path.endswith(f"/{path}")


if TYPE_CHECKING:
    _: type[Store] = RemoteStore
