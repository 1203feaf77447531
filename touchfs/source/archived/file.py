"""A file in an archive as a source. It stays the version that was indexed or first opened."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple
from zipfile import ZIP_DEFLATED, ZIP_STORED

from touchfs.core.errors import ChangedError, SourceError
from touchfs.core.extent import Buffer, Source
from touchfs.core.names import hex_digest
from touchfs.core.urls import InArchive, shown
from touchfs.source.archived.archive import Archive, archive_at
from touchfs.source.archived.directory import ZipMember, find_data, inflate
from touchfs.source.fingerprint import Fingerprint
from touchfs.source.remote.versions import tells_version
from touchfs.source.scratch.source import ScratchSource
from touchfs.source.scratch.store import Scratch
from touchfs.source.store import PlainRange, StoredFile


class _OpenMember(NamedTuple):
    """The archive's file, and the source that has the bytes from `start` on: the same, or a decompressed copy."""

    archive: StoredFile
    source: Source
    start: int
    fingerprint: Fingerprint


class ArchivedFile:
    """The file NAME in an archive of another store. A compressed one is decompressed once, into the scratch store."""

    __slots__ = ("_archive", "_fingerprint", "_opened", "_place")

    def __init__(self, place: InArchive, fingerprint: Fingerprint | None = None) -> None:
        self._place = place
        self._archive: Archive = archive_at(place.archive)
        self._fingerprint = fingerprint
        self._opened: _OpenMember | None = None

    @property
    def path(self) -> str:
        """See `StoredFile.path`. Without secrets."""
        return shown(self._place.path)

    @property
    def size(self) -> int:
        return (self._fingerprint or self._verified().fingerprint).size

    @property
    def fingerprint(self) -> Fingerprint | None:
        return self._fingerprint

    @property
    def identity(self) -> str | None:
        fingerprint = self._fingerprint
        if fingerprint is None or fingerprint.etag is None or not tells_version(fingerprint):
            return None
        return f"{self._place.path}\0{fingerprint.hashed}"

    def plain_range(self, offset: int, length: int) -> PlainRange | None:
        opened = self._verified()
        if opened.source is not opened.archive:
            return None
        return opened.archive.plain_range(opened.start + offset, length)

    @property
    def is_verified(self) -> bool:
        return self._opened is not None and self._opened.archive.is_verified

    def open(self) -> None:
        self._opened = None
        self._archive.look()
        self._verified()

    def close(self) -> None:
        """See `StoredFile.close`. The archive stays open for others."""
        self._opened = None

    def read(self, offset: int, length: int) -> bytes:
        opened = self._verified()
        if offset + length > opened.fingerprint.size:
            message = "the file ends here, before the data that its index names"
            raise SourceError(message, path=self.path, offset=opened.fingerprint.size)
        return bytes(opened.source.read(opened.start + offset, length)) if length else b""

    def read_into(self, offset: int, buffer: memoryview) -> None:
        buffer[:] = self.read(offset, len(buffer))

    def read_nowait(self, offset: int, length: int) -> Buffer | None:
        """See `Source.read_nowait`. Returns None also if the archive has to be verified first."""
        opened = self._opened
        if opened is None or not opened.archive.is_verified or offset + length > opened.fingerprint.size:
            return None
        return opened.source.read_nowait(opened.start + offset, length)

    def _verified(self) -> _OpenMember:
        opened = self._opened
        if opened is not None and opened.archive.is_verified:
            return opened
        version, member = self._archive.member(self._place.name)
        if not self._is_expected(version.fingerprint_of(member)):
            self._archive.look()  # another process may have seen a newer version within the last second
            version, member = self._archive.member(self._place.name)
        found = version.fingerprint_of(member)
        if not self._is_expected(found):
            raise ChangedError("the archive was replaced or changed since it was indexed", path=self.path)
        if opened is None or opened.archive is not version.file:
            if member.is_encrypted:
                raise SourceError("is encrypted: unpack the archive", path=self.path)
            if member.method not in (ZIP_STORED, ZIP_DEFLATED):
                raise SourceError("is compressed, and not by deflate: unpack the archive", path=self.path)
            if member.method == ZIP_DEFLATED:
                opened = _OpenMember(version.file, self._decompressed(version.file, member, found), 0, found)
            else:
                opened = _OpenMember(version.file, version.file, find_data(version.file, member), found)
        self._fingerprint = found
        self._opened = opened
        return opened

    def _is_expected(self, found: Fingerprint) -> bool:
        return self._fingerprint is None or self._fingerprint.matches(found)

    def _decompressed(self, archive: StoredFile, member: ZipMember, fingerprint: Fingerprint) -> Source:
        # Not the name that `scratch_name` gives to what is decompressed from it, as of a `.tar.gz`. The fingerprint may
        # tell no version.
        text = f"unzipped\0{self._place.path}\0{fingerprint.hashed}\0{archive.size}\0{member.header}\0{member.crc}"
        name = hex_digest(text.encode(errors="surrogateescape"))
        return ScratchSource(Scratch.configured().make(name, inflate(archive, member), member.size))

    def __repr__(self) -> str:
        return f"ArchivedFile({self.path!r})"

    def __reduce__(self) -> tuple[type[ArchivedFile], tuple[InArchive, Fingerprint | None]]:
        return ArchivedFile, (self._place, self._fingerprint)


if TYPE_CHECKING:
    _: type[StoredFile] = ArchivedFile
