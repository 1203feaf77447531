"""The members of a ZIP archive, by its central directory (APPNOTE.TXT of PKWARE, sections 4.3.7, 4.3.12 and 4.4).

Python's `zipfile` reads the directory, also that of ZIP64. It is not believed further than the archive's bytes go.
Members are decompressed here: `zipfile` sets no limit to what a step of bzip2 or LZMA may become.
"""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from touchfs.errors import FormatError
from touchfs.extent.file_object import FileObject
from touchfs.posix.paths import climbs
from touchfs.source.store import StoredFile

# A member takes 46 bytes of it and its name; in our memory about a kilobyte, and its directories as much again.
DIRECTORY_MAX = 8 << 20
# Longer and deeper names are left out: each directory above a name is known by its own name.
_NAME_MAX, _DEPTH_MAX = 1024, 32
_STEP = 1 << 20
_BUFFER = 1 << 16
_ENCRYPTED, _UTF8 = 0x1, 0x800
# Signature, flags, and the lengths of the name and the extra field that follow.
_LOCAL_HEADER = struct.Struct("<4s2xH18xHH")
_SIGNATURE = b"PK\3\4"


class ZipMember(NamedTuple):
    """A file in an archive: sizes in bytes, decompressed and as stored, and where its header begins.

    `written` is its name as in the header; `method` is that of compression.
    """

    written: str
    size: int
    stored_size: int
    header: int
    crc: int
    method: int
    is_encrypted: bool


def read_directory(file: StoredFile) -> dict[str, ZipMember]:
    """The files in an archive by name; of several of one name, the last one. Names that lead out are left out.

    Raises FormatError, and what reading the file raises.
    """
    try:
        with zipfile.ZipFile(_Reader(FileObject(file), _BUFFER)) as archive:
            return {
                name: ZipMember(
                    found.orig_filename,
                    found.file_size,
                    found.compress_size,
                    found.header_offset,
                    found.CRC,
                    found.compress_type,
                    bool(found.flag_bits & _ENCRYPTED),
                )
                for found in archive.infolist()
                if not found.is_dir() and (name := _plain(found.filename))
            }
    except FormatError as error:
        error.at(file.path)
        raise
    except (zipfile.BadZipFile, EOFError, NotImplementedError, struct.error, ValueError, OSError) as error:
        raise FormatError(f"cannot be read as a ZIP archive: {error}", path=file.path) from error


def find_data(file: StoredFile, member: ZipMember) -> int:
    """The offset in the archive at which the bytes of a member begin. Raises FormatError, and as reading the file."""
    start = member.header + _LOCAL_HEADER.size
    if member.header >= 0 and start <= file.size:
        signature, flags, name_length, extra_length = _LOCAL_HEADER.unpack(file.read(member.header, _LOCAL_HEADER.size))
        data = start + name_length + extra_length
        is_whole = member.method != zipfile.ZIP_STORED or member.size == member.stored_size
        if signature == _SIGNATURE and is_whole and data + member.stored_size <= file.size:
            name = file.read(start, name_length).decode("utf-8" if flags & _UTF8 else "cp437", "replace")
            if name == member.written:
                return int(data)
    message = f"the archive is damaged: {member.written} is not where its directory says"
    raise FormatError(message, path=file.path, offset=member.header)


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


def _plain(written: str) -> str:
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
