"""The store of all that is in archives: `zip://NAME::ARCHIVE`, where the archive is a local path or a URL.

No kept library does this: fsspec's client for ZIP reads each range of a member from the member's start, and notices no
change of the archive.
"""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from touchfs.core.errors import NotFoundError, SourceError
from touchfs.core.extent.file_object import FileObject
from touchfs.core.location import Location
from touchfs.core.urls import InArchive, climbs
from touchfs.source.archived.archive import archive_at
from touchfs.source.archived.file import ArchivedFile
from touchfs.source.fingerprint import Fingerprint
from touchfs.source.store import FileType, Status, Store, StoredEntry

_STREAM_BUFFER = 1 << 20


class _ArchiveEntry(NamedTuple):
    name: str
    status: Status

    def is_file(self) -> bool:
        return self.status.type is FileType.FILE

    def is_dir(self) -> bool:
        return self.status.type is FileType.DIRECTORY


class ArchiveStore:
    """Files in archives of another store. Paths have either form of `touchfs.core.urls`."""

    def list(self, directory: str) -> Sequence[StoredEntry]:
        place = _place(directory)
        version = archive_at(place.archive).look()
        if (names := version.directories.get(place.name)) is None:
            raise NotFoundError("there is no such directory in the archive", path=directory)
        found = {name: version.status(os.path.join(place.name, name)) for name in sorted(names)}
        return [_ArchiveEntry(name, status) for name, status in found.items() if status is not None]

    def stat(self, path: str) -> Status:
        place = _place(path)
        status = archive_at(place.archive).look().status(place.name)
        if status is None:
            raise NotFoundError("there is no such file or directory in the archive", path=path)
        return status

    def open(self, path: str, fingerprint: Fingerprint | None = None) -> ArchivedFile:
        return ArchivedFile(_place(path), fingerprint)

    def open_beneath(self, root: str, path: str, fingerprint: Fingerprint | None = None) -> ArchivedFile:
        """See `Store.open_beneath`. Archives have no links, so the path decides."""
        parts = path.split("/")
        if "://" in path or climbs(path) or not all(parts) or "." in parts:
            raise SourceError("the path leads out of its directory", path=os.path.join(root, path))
        return self.open(os.path.join(Location.of(root).path, path), fingerprint)

    def stream(self, path: str) -> BinaryIO:
        return io.BufferedReader(FileObject(self.open(path)), _STREAM_BUFFER)


def _place(path: str) -> InArchive:
    """The place that a path of either form names. Raises UsageError."""
    place = Location.parse(path).inside
    if place is None:
        raise SourceError("does not name a file in an archive", path=path)
    return place


if TYPE_CHECKING:
    _: type[Store] = ArchiveStore
