"""What is in a ZIP archive, by its central directory (APPNOTE.TXT of PKWARE, sections 4.3.7, 4.3.12).

Python's `zipfile` reads the directory, also that of ZIP64. It is not believed further than the archive's bytes go.
"""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple
from zlib import error as ZlibError  # a class

from touchfs.errors import FormatError
from touchfs.posix.paths import climbs
from touchfs.source.store import FileStream, StoredFile

# A name in it takes 46 bytes and more, and about 600 in our memory.
DIRECTORY_MAX = 32 << 20
_STEP = 1 << 20
_BUFFER = 1 << 16
_ENCRYPTED = 0x1
# Signature, and the lengths of the name and the extra field that follow.
_LOCAL_HEADER = struct.Struct("<4s22xHH")
_SIGNATURE = b"PK\3\4"


class ZipMember(NamedTuple):
    """A file in an archive: its decompressed size in bytes, and where its header begins."""

    name: str
    size: int
    header: int
    stored_size: int
    crc: int
    is_compressed: bool
    is_encrypted: bool


def read_directory(file: StoredFile) -> dict[str, ZipMember]:
    """The files in an archive by name; of several of one name, the last one. Names that lead out are left out.

    Raises FormatError, and what reading the file raises.
    """
    with _opened(file) as archive:
        return {
            name: ZipMember(
                name,
                found.file_size,
                found.header_offset,
                found.compress_size,
                found.CRC,
                found.compress_type != zipfile.ZIP_STORED,
                bool(found.flag_bits & _ENCRYPTED),
            )
            for found in archive.infolist()
            if not found.is_dir() and (name := found.filename.strip("/")) and not climbs(name) and "//" not in name
        }


def find_data(file: StoredFile, member: ZipMember) -> int:
    """Where the bytes of an uncompressed member begin. Raises FormatError, and what reading the file raises."""
    start = member.header + _LOCAL_HEADER.size
    if member.header >= 0 and start <= file.size:
        signature, *lengths = _LOCAL_HEADER.unpack(file.read(member.header, _LOCAL_HEADER.size))
        start += sum(lengths)
        if signature == _SIGNATURE and member.size == member.stored_size and start + member.size <= file.size:
            return int(start)
    message = f"the archive is damaged: {member.name} is not where its directory says"
    raise FormatError(message, path=file.path, offset=member.header)


def decompress(file: StoredFile, member: ZipMember) -> Iterator[bytes]:
    """The bytes of a compressed member, in pieces, verified by its checksum at the end. Raises as `find_data`."""
    with _opened(file) as archive, archive.open(archive.getinfo(member.name)) as data:
        size = 0
        while piece := data.read(_STEP):
            size += len(piece)
            yield piece
    if size != member.size:
        raise FormatError(f"{member.name} ends after {size:,} bytes, and should have {member.size:,}", path=file.path)


class _Reader(io.BufferedReader):
    """What `zipfile` reads at once is limited: it takes the size of the directory from the archive."""

    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and size > DIRECTORY_MAX:
            raise FormatError("its directory is damaged, or has too many names to be read: unpack it")
        return super().read(size)


@contextmanager
def _opened(file: StoredFile) -> Iterator[zipfile.ZipFile]:
    try:
        with zipfile.ZipFile(_Reader(FileStream(file), _BUFFER)) as archive:
            yield archive
    except FormatError as error:
        error.at(file.path)
        raise
    except (zipfile.BadZipFile, ZlibError, EOFError, NotImplementedError, struct.error, ValueError, OSError) as error:
        raise FormatError(f"cannot be read as a ZIP archive: {error}", path=file.path) from error
