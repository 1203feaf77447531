"""A shard that is a ZIP archive of samples: `touchfs.containers.tar.samples` groups its members as those of a tar.

A member that is stored as it is, is a range of the archive. A deflated one is a range of a second source,
`InflatedFile`: all of these decompressed, end to end, in the order of the archive's directory. So forms and pieces of
recordings need not know of it. Each is decompressed when it is read: into memory up to a window, else into the scratch
store.

Members that cannot be shown are listed in `problems`: encrypted ones, those that another method has compressed, links
and devices, names that lead out, and headers that the directory does not describe.
"""

from __future__ import annotations

import os
import stat
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple
from zipfile import ZIP_DEFLATED, ZIP_STORED

from touchfs.containers.tar.samples import ArchiveShard
from touchfs.containers.tar.tar_sound import SUFFIXES
from touchfs.core.errors import FormatError, SourceError
from touchfs.core.extent import Buffer, Content, Extent, Memory, drive
from touchfs.core.names import hex_digest
from touchfs.core.progress import reached
from touchfs.form.computed import ComputedContent
from touchfs.form.plain import BYTES
from touchfs.limits import LIMITS, too_large
from touchfs.media import duration
from touchfs.media.duration import AudioInfo
from touchfs.shard import single
from touchfs.shard.options import Options
from touchfs.shard.sample import Field
from touchfs.source.archived.directory import ZipMember, find_data, inflate, read_directory
from touchfs.source.data import DATA
from touchfs.source.fingerprint import Files, Fingerprint
from touchfs.source.scratch.source import ScratchSource
from touchfs.source.scratch.store import Scratch
from touchfs.source.store import StoredFile

# Ends the name of the second source. Chains have it, too, between an archive and a name in it.
_INFLATED = "!"
_REPORT_EVERY = 256


class _Shown(NamedTuple):
    """A member that is shown: a range of a source, and what its header says of a recording."""

    name: str
    source: str
    offset: int
    size: int
    sound: AudioInfo | None


class ZipShard(single.SingleFile, ArchiveShard[_Shown]):
    """The samples of the archive at `path`. Reads its directory and the headers of its members.

    `check` says from the names of members what else the archive is, "" if it is one of samples.
    """

    def __init__(self, path: str, options: Options, files: Files, check: Callable[[Iterator[str]], str]) -> None:
        (name,) = files
        single.SingleFile.__init__(self, path, name, files)
        self.problems: list[str] = []
        try:
            listed = read_directory(self._file)
            if problem := check(member.written for member in listed):
                raise FormatError(f"is {problem}", path=path)
            members = [*self._shown(listed, options.limits.decoded)]
        except BaseException:
            self.close()
            raise
        ArchiveShard.__init__(self, members, options.key_rule)
        self.regrouped = 0  # such shards were never grouped in another way

    def _field(self, extension: str | None, member: _Shown, written: str | None = None) -> Field:
        return Field(extension or "", member.source, member.offset, member.size, BYTES, extension, written=written)

    def _sound(self, member: _Shown) -> AudioInfo | None:
        return member.sound

    def _shown(self, members: Sequence[ZipMember], limit: int) -> Iterator[_Shown]:
        inflated = 0
        for number, member in enumerate(members):
            start, is_stored = inflated, member.method == ZIP_STORED
            inflated += member.size if _is_inflated(member) else 0
            if number % _REPORT_EVERY == 0:
                reached(number, len(members))
            if not (problem := _problem(member, limit)):
                try:
                    offset = find_data(self._file, member)
                except FormatError:
                    problem = "is not where, or not what, the archive's directory says"
            if problem:
                self.problems.append(f"{member.written!r} {problem}: not shown (at byte {member.header})")
                continue
            sound = self._measured(member, offset)
            if is_stored:
                yield _Shown(member.written, self._name, offset, member.size, sound)
            else:
                yield _Shown(member.written, self._name + _INFLATED, start, member.size, sound)

    def _measured(self, member: ZipMember, offset: int) -> AudioInfo | None:
        """Rate and length of a recording by its first bytes; None of another file, or a damaged one."""
        if not member.written[-5:].lower().endswith(SUFFIXES):
            return None
        try:
            head: Content = Extent(self._file, offset, member.size)
            if member.method == ZIP_DEFLATED:
                head = _Head(next(inflate(self._file, member), b""))
            return drive(duration.scan(member.size), head)
        except (FormatError, SourceError):
            return None


class _Head(Memory):
    """The first bytes of a recording, of which more are an error, but for the first read."""

    def read(self, offset: int, length: int) -> Buffer:
        if offset and offset + length > self.size:
            raise SourceError("only the start of the recording was decompressed")
        return super().read(offset, length)


class InflatedFile:
    """The deflated members of the archive at a path, decompressed, end to end. A read is of one of them."""

    __slots__ = ("_archive", "_last", "_place", "_table")

    def __init__(self, path: str, fingerprint: Fingerprint) -> None:
        self._place = path, fingerprint
        self._archive = DATA.open(path, fingerprint)
        self._table: tuple[list[int], list[ZipMember]] | None = None
        self._last: tuple[ZipMember, Content] | None = None

    @property
    def path(self) -> str:
        return self._archive.path

    @property
    def size(self) -> int:
        return self._members()[0][-1]

    @property
    def fingerprint(self) -> Fingerprint | None:
        return self._archive.fingerprint

    @property
    def identity(self) -> str | None:
        identity = self._archive.identity
        return None if identity is None else identity + _INFLATED

    def plain_range(self, offset: int, length: int) -> None:
        """None: see `StoredFile.plain_range`. Members are decompressed."""

    @property
    def is_verified(self) -> bool:
        return self._archive.is_verified

    def open(self) -> None:
        self._archive.open()

    def close(self) -> None:
        self._archive.close()
        self._last = None

    def read(self, offset: int, length: int) -> bytes:
        """See `StoredFile.read`. Raises FormatError if the member is damaged."""
        if not self._archive.is_verified:
            self._archive.open()
        if not length:
            return b""
        starts, members = self._members()
        number = bisect_right(starts, offset) - 1
        if not 0 <= number < len(members) or offset + length > starts[number + 1]:
            raise SourceError("has no such member, which its index names: index with --force", path=self.path)
        return bytes(self._content(members[number]).read(offset - starts[number], length))

    def read_into(self, offset: int, buffer: memoryview) -> None:
        buffer[:] = self.read(offset, len(buffer))

    def read_nowait(self, offset: int, length: int) -> Buffer | None:
        """See `Source.read_nowait`. Only bytes of the member that was read last are there."""
        table, last = self._table, self._last
        if table is None or last is None or not self._archive.is_verified:
            return None
        starts, members = table
        number = bisect_right(starts, offset) - 1
        if not 0 <= number < len(members) or members[number] is not last[0] or offset + length > starts[number + 1]:
            return None
        return last[1].read_nowait(offset - starts[number], length)

    def _members(self) -> tuple[list[int], list[ZipMember]]:
        """Where each member begins, with the end of the last one, and the members. The version of the file is known."""
        if self._table is None:
            # Empty ones have no bytes, and begin where others do.
            members = [member for member in read_directory(self._archive) if _is_inflated(member) and member.size]
            self._table = [*accumulate((member.size for member in members), initial=0)], members
        return self._table

    def _content(self, member: ZipMember) -> Content:
        last = self._last
        if last is None or last[0] is not member:
            last = self._last = member, self._inflated(member)
        return last[1]

    def _inflated(self, member: ZipMember) -> Content:
        """The bytes of a member: computed now and then if they fit into a window, else kept in the scratch store."""
        archive, (path, fingerprint) = self._archive, self._place
        # As the fingerprint may tell no version, what the directory says of the member is in the name, too.
        name = f"inflated\0{path}\0{fingerprint.hashed}\0{archive.size}\0{member.header}\0{member.crc}"
        if member.size <= LIMITS.window:
            return ComputedContent(member.size, member.size, lambda *_: b"".join(inflate(archive, member)), name)
        kept = hex_digest(name.encode(errors="surrogateescape"))
        return Extent(
            ScratchSource(Scratch.configured().make(kept, inflate(archive, member), member.size)), 0, member.size
        )

    def __reduce__(self) -> tuple[type[InflatedFile], tuple[str, Fingerprint]]:
        return InflatedFile, self._place


def open_source(path: str, name: str, files: Files) -> StoredFile:
    """The archive, or its deflated members. Raises FormatError if it is not a file of the shard."""
    if name == os.path.basename(path) + _INFLATED:
        return InflatedFile(path, single.fingerprint_of(path, name.removesuffix(_INFLATED), files))
    return single.open_source(path, name, files)


def _is_inflated(member: ZipMember) -> bool:
    return member.method == ZIP_DEFLATED and not member.is_encrypted


def _problem(member: ZipMember, limit: int) -> str:
    """Why a member cannot be shown; "" if it can, by what the directory says."""
    if not member.name or "\0" in member.written:
        return "has a name that leads out of the archive, or is too long"
    if member.is_encrypted:
        return "is encrypted"
    if member.method not in (ZIP_STORED, ZIP_DEFLATED):
        return f"is compressed by method {member.method}, and not by deflate"
    if stat.S_IFMT(member.mode) not in (0, stat.S_IFREG):
        return "is a link, a device or the like"
    return too_large(limit) if member.method == ZIP_DEFLATED and member.size > limit else ""


if TYPE_CHECKING:
    _: type[StoredFile] = InflatedFile
