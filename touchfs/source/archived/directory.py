"""The members of a ZIP archive, by its central directory (APPNOTE.TXT of PKWARE, sections 4.3.7, 4.3.12 and 4.4).

Python's `zipfile` reads the directory, also that of ZIP64. It is not believed further than the archive's bytes go.
Members are decompressed here: `zipfile` sets no limit to what a step of bzip2 or LZMA may become.
"""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from touchfs.core.errors import FormatError
from touchfs.core.extent.file_object import FileObject
from touchfs.core.urls import climbs
from touchfs.source.store import StoredFile

# A member takes 46 bytes of it and its name; in our memory about a kilobyte, and its directories as much again.
DIRECTORY_MAX = 8 << 20
# Longer and deeper names are left out: each directory above a name is known by its own name.
_NAME_MAX, _DEPTH_MAX = 1024, 32
_STEP = 1 << 20
_BUFFER = 1 << 16
_ENCRYPTED, _SIZES_FOLLOW, _UTF8 = 0x1, 0x8, 0x800
# Signature, flags, method, checksum, sizes as stored and decompressed, and the lengths of the name and the extra field
# that follow. Sizes of ZIP64 are in the extra field, and here is the largest number.
_LOCAL_HEADER = struct.Struct("<4s2xHH4xIIIHH")
_SIGNATURE, _IN_EXTRA = b"PK\3\4", 0xFFFFFFFF
# Of deflate: two bits may stand for 258 bytes.
_RATIO_MAX = 1032


class ZipMember(NamedTuple):
    """A file in an archive: sizes in bytes, decompressed and as stored, and where its header begins.

    `written` is its name as in the header, `name` that without steps that do nothing, "" if it leads out or is too
    long; `method` is that of compression, `mode` that of the file on Unix, 0 if unknown. What follows begins at `end`.
    """

    written: str
    name: str
    size: int
    stored_size: int
    header: int
    crc: int
    method: int
    is_encrypted: bool
    mode: int
    end: int


def read_directory(file: StoredFile) -> list[ZipMember]:
    """The files in an archive, in the order of its directory. Several may have one name.

    Raises FormatError if it cannot be read, or no archive has such members, and what reading the file raises.
    """
    try:
        with zipfile.ZipFile(_Reader(FileObject(file), _BUFFER)) as archive:
            found = [_member(each) for each in archive.infolist()]
            return [each for each in _placed(found, archive.start_dir) if not each.written.endswith("/")]
    except FormatError as error:
        error.at(file.path)
        raise
    except (zipfile.BadZipFile, EOFError, NotImplementedError, struct.error, ValueError, OSError) as error:
        raise FormatError(f"cannot be read as a ZIP archive: {error}", path=file.path) from error


def find_data(file: StoredFile, member: ZipMember) -> int:
    """The offset in the archive at which the bytes of a member begin.

    Raises FormatError if its header is not that which the directory describes, and what reading the file raises.
    """
    start = member.header + _LOCAL_HEADER.size
    if member.header >= 0 and start <= file.size:
        signature, *header = _LOCAL_HEADER.unpack(file.read(member.header, _LOCAL_HEADER.size))
        flags, *_, name_length, extra_length = header
        data = start + name_length + extra_length
        if signature == _SIGNATURE and data + member.stored_size <= member.end and _describes(header, member):
            name = file.read(start, name_length).decode("utf-8" if flags & _UTF8 else "cp437", "replace")
            if name == member.written:
                return int(data)
    raise _misplaced(member).at(file.path)


def _describes(header: Sequence[int], member: ZipMember) -> bool:
    """True if the numbers of a header are those that the directory has of a member."""
    flags, method, crc, stored_size, size, *_ = header
    if method != member.method or bool(flags & _ENCRYPTED) != member.is_encrypted:
        return False
    unknown = (0,) if flags & _SIZES_FOLLOW else ()
    if crc not in (member.crc, *unknown):
        return False
    if stored_size not in (member.stored_size, _IN_EXTRA, *unknown) or size not in (member.size, _IN_EXTRA, *unknown):
        return False
    return method != zipfile.ZIP_STORED or member.is_encrypted or member.size == member.stored_size


def _member(found: zipfile.ZipInfo) -> ZipMember:
    return ZipMember(
        found.orig_filename,
        plain_name(found.filename),
        found.file_size,
        found.compress_size,
        found.header_offset,
        found.CRC,
        found.compress_type,
        bool(found.flag_bits & _ENCRYPTED),
        found.external_attr >> 16,
        0,
    )


def _placed(members: Sequence[ZipMember], end: int) -> list[ZipMember]:
    """The members with their ends. Raises FormatError unless they follow each other, and may be as large as they say.

    Bytes that several members have in common can become any number.
    """
    last, ordered = None, sorted(members, key=lambda each: each.header)
    for member in ordered:
        if last is not None and last > member.header:
            raise _misplaced(member)
        last = member.header + _LOCAL_HEADER.size + len(member.written) + member.stored_size
        if not 0 <= member.header <= last <= end:
            raise _misplaced(member)
        if member.method == zipfile.ZIP_DEFLATED and member.size > _RATIO_MAX * member.stored_size:
            sizes = f"{member.stored_size:,} bytes do not become {member.size:,}"
            raise FormatError(f"the archive is damaged: of {member.written}, {sizes}", offset=member.header)
    starts = [member.header for member in ordered]
    ends = dict(zip(starts, [*starts[1:], end], strict=True))
    return [member._replace(end=ends[member.header]) for member in members]


def _misplaced(member: ZipMember) -> FormatError:
    message = f"the archive is damaged: {member.written} is not where its directory says"
    return FormatError(message, offset=member.header)


def inflate(file: StoredFile, member: ZipMember) -> Iterator[bytes]:
    """The bytes of a member that deflate has compressed, in pieces. Raises FormatError, at the latest at the end, if
    they do not fit the member's size and checksum, and what reading the file raises.
    """
    start, stop = find_data(file, member), member.stored_size
    inflater, size, crc = zlib.decompressobj(-zlib.MAX_WBITS), 0, 0
    for offset in range(0, stop, _STEP):
        data, piece = file.read(start + offset, min(_STEP, stop - offset)), b""
        while (data or len(piece) == _STEP) and not inflater.eof and size <= member.size:
            try:
                piece = inflater.decompress(data, _STEP)
            except zlib.error as error:
                raise FormatError(f"{member.written} cannot be decompressed: {error}", path=file.path) from error
            data = inflater.unconsumed_tail
            size, crc = size + len(piece), zlib.crc32(piece, crc)
            yield piece
    if not inflater.eof or (size, crc) != (member.size, member.crc):
        message = f"{member.written} is damaged: its size or checksum is not that of the archive's directory"
        raise FormatError(message, path=file.path, offset=member.header)


def plain_name(written: str) -> str:
    """The name without steps that do nothing; empty if it leads out, or is too long."""
    steps = [step for step in written.split("/", _DEPTH_MAX + 1) if step not in ("", ".")]
    name = "/".join(steps)
    return "" if climbs(name) or len(name) > _NAME_MAX or len(steps) > _DEPTH_MAX else name


class _Reader(io.BufferedReader):
    """Limits what `zipfile` reads at once: it believes the size that the archive says its directory has."""

    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and size > DIRECTORY_MAX:
            raise FormatError("its directory is damaged, or has too many names to be read: unpack it")
        return super().read(size)
