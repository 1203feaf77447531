"""An archive that is open: its file, and what is in it, of the version that is there now."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache
from typing import NamedTuple
from weakref import WeakSet

from touchfs.core.errors import ChangedError, NotFoundError, SourceError
from touchfs.core.location import Location
from touchfs.core.names import hex_digest
from touchfs.source.archived.directory import ZipMember, read_directory
from touchfs.source.fingerprint import Fingerprint
from touchfs.source.plain import plain_store
from touchfs.source.store import FileType, Status, StoredFile

# Archives whose directories are kept in memory.
_KEPT = 16
_ARCHIVES: WeakSet[Archive] = WeakSet()


class ArchiveVersion(NamedTuple):
    """The file of an archive, which stays this version, its members by name, and what is in each directory."""

    file: StoredFile
    members: dict[str, ZipMember]
    directories: dict[str, set[str]]

    def fingerprint_of(self, member: ZipMember) -> Fingerprint:
        """The fingerprint of a member, which changes with the archive. It has no version if the archive has none."""
        if (identity := self.file.identity) is None:
            archive = self.file.fingerprint
            etag = None if archive is None or archive.etag is None else f"{archive.etag} {member.header} {member.crc}"
            return Fingerprint(member.size, 0, etag=etag)
        text = f"{identity}\0{member.header}\0{member.crc}"
        return Fingerprint(member.size, 0, etag=hex_digest(text.encode(errors="surrogateescape")))

    def status(self, name: str) -> Status | None:
        """The status of a name, which may be a directory; None if it is not there."""
        if (member := self.members.get(name)) is not None:
            return Status(FileType.FILE, self.fingerprint_of(member))
        return Status(FileType.DIRECTORY, Fingerprint(0, 0)) if name in self.directories else None


class Archive:
    """The archive at a path. Safe for several threads."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._version: ArchiveVersion | None = None
        self.renew_lock()
        _ARCHIVES.add(self)

    def renew_lock(self) -> None:
        """Give it a lock that no other thread holds."""
        self._lock = threading.Lock()

    def current(self) -> ArchiveVersion:
        """The version that is there now, looked for as often as other files are verified.

        Raises NotFoundError, SourceError or FormatError.
        """
        version = self._version
        if version is not None and version.file.is_verified:
            return version
        with self._lock:
            version = self._version
            return version if version is not None and version.file.is_verified else self._looked()

    def look(self) -> ArchiveVersion:
        """The version that is there now, looked for at once. Raises as `current`."""
        with self._lock:
            return self._looked()

    def _looked(self) -> ArchiveVersion:
        if (version := self._version) is not None:
            with suppress(ChangedError):
                version.file.open()
                return version
        store = plain_store(Location.of(self._path))
        kind, fingerprint = store.stat(self._path)
        if kind is not FileType.FILE:
            raise SourceError("is no archive, but a directory, a pipe or a device", path=self._path)
        file = store.open(self._path, fingerprint)
        file.open()
        # Of several members of one name, the last one.
        members = {member.name: member for member in read_directory(file) if member.name}
        self._version = ArchiveVersion(file, members, _directories(members))
        return self._version

    def member(self, name: str) -> tuple[ArchiveVersion, ZipMember]:
        """A file in it. Raises as `current`."""
        version = self.current()
        if (member := version.members.get(name)) is None:
            raise NotFoundError(f"there is no {name} in the archive", path=self._path)
        return version, member


@lru_cache(_KEPT)
def archive_at(path: str) -> Archive:
    """The archive at a path. Accesses nothing."""
    return Archive(path)


def _directories(names: Iterable[str]) -> dict[str, set[str]]:
    """The names in each directory above these names; the root is `""`."""
    found: dict[str, set[str]] = {"": set()}
    for name in names:
        above, _, own = name.rpartition("/")
        while own not in (there := found.setdefault(above, set())):
            there.add(own)
            if above:
                above, _, own = above.rpartition("/")
    return found


def _after_fork() -> None:
    """A thread of the parent may have held a lock."""
    for archive in _ARCHIVES:
        archive.renew_lock()


os.register_at_fork(after_in_child=_after_fork)
