"""Compressed files: gzip, Zstandard, xz and bzip2, told by the suffix.

No byte range is ever read from one. It is decompressed once, from its beginning to its end, into the scratch store,
where its name is a hash of its path and of what the file was (`FileIdentity`): so one that has changed is another one,
and a `DecompressedFile` that was opened for the old one says so.

All four formats may have several members (frames, streams) end to end, and zeros after them, as tapes are padded.
Anything else that follows is damage. So is an end within a member: what came before it is not served, as nobody can
know whether it is all right.

Decompressors are given little at a time, so what comes out of it fits into memory, whatever it claims: 4 KiB become
4 MiB (gzip), 30 MiB (xz), 80 MiB (bzip2) or 128 MiB (Zstandard) at most. How much comes out in all is bounded by the
store's limit; a size that is known before is refused before.
"""

from __future__ import annotations

import bz2
import hashlib
import lzma
import os
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, Protocol

from touchfs.errors import ChangedError, FormatError, MissingExtraError, NotFoundError, SourceError, TouchfsError
from touchfs.extent import Buffer
from touchfs.posix.trust import open_alone
from touchfs.progress import Progress
from touchfs.source.local import FileIdentity, LocalFile
from touchfs.source.scratch import Scratch, ScratchFile

BLOCK_SIZE = 1 << 20
STEP_SIZE = 1 << 12
# xz files made with `-9` need 64 MiB.
XZ_MEMORY_MAX = 1 << 30
_XZ_INDEX_MAX = 1 << 20


class Decompressor(Protocol):
    """That of one member."""

    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: Buffer, /) -> bytes: ...


class Codec(NamedTuple):
    """A format. `size_at_least` is what a file says, at its beginning or end, of the size of its decompressed form."""

    name: str
    member: Callable[[], Decompressor]
    errors: tuple[type[Exception], ...]
    size_at_least: Callable[[LocalFile], int]


def _gzip_size(file: LocalFile) -> int:
    """The last four bytes are the size of the last member, modulo 2^32."""
    return int.from_bytes(file.read(file.size - 4, 4), "little") if file.size >= 18 else 0


def _xz_size(file: LocalFile) -> int:
    """What the index of the last stream adds up to."""
    end = file.size - 12
    footer = file.read(end, 12) if end >= 0 else b""
    size = 4 * (int.from_bytes(footer[4:8], "little") + 1)
    if footer[10:] != b"YZ" or size > min(end, _XZ_INDEX_MAX):
        return 0
    numbers = list(_xz_numbers(file.read(end - size + 1, size - 1)))
    return sum(numbers[2 : 2 * numbers[0] + 1 : 2]) if numbers else 0


def _xz_numbers(data: Buffer) -> Iterator[int]:
    """The count of blocks, then of each its size in the file and decompressed; 7 bits a byte, the lowest first."""
    number = shift = 0
    for byte in data:
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            yield number
            number = shift = 0
        elif shift > 63:
            return


def _zstd() -> Codec:
    import zstandard

    def size_at_least(file: LocalFile) -> int:
        """What the first frame says."""
        try:
            size = zstandard.get_frame_parameters(file.read(0, min(file.size, 18))).content_size
        except zstandard.ZstdError:
            return 0
        return 0 if size == zstandard.CONTENTSIZE_UNKNOWN else size

    def member() -> Decompressor:
        return zstandard.ZstdDecompressor().decompressobj()

    return Codec("Zstandard", member, (zstandard.ZstdError,), size_at_least)


_GZIP = Codec("gzip", lambda: zlib.decompressobj(wbits=31), (zlib.error,), _gzip_size)
_XZ = Codec("xz", lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, XZ_MEMORY_MAX), (lzma.LZMAError,), _xz_size)
_BZIP2 = Codec("bzip2", bz2.BZ2Decompressor, (OSError,), lambda file: 0)
_BY_SUFFIX: dict[str, Callable[[], Codec]] = {
    ".gz": lambda: _GZIP,
    ".tgz": lambda: _GZIP,
    ".xz": lambda: _XZ,
    ".bz2": lambda: _BZIP2,
    ".zst": _zstd,
}


def codec_of(path: str) -> Codec:
    """Raises MissingExtraError where there is no decompressor for it."""
    try:
        return _BY_SUFFIX[os.path.splitext(path)[1]]()
    except ImportError as error:
        told = "decompressing it needs the zstd extra: `pip install 'touchfs[zstd]'`"
        raise MissingExtraError(told, path=path) from error


def decompress(codec: Codec, steps: Iterable[bytes]) -> Iterator[bytes]:
    """The decompressed bytes of a file, given in steps of at most `STEP_SIZE`. Raises FormatError, with the offset."""
    member: Decompressor | None = None
    is_empty = True
    offset = size = 0
    for step in steps:
        data = step if member else step.lstrip(b"\0")
        while data:
            is_empty = False
            member = member or codec.member()
            piece = _step(codec, member, data, offset, size)
            size += len(piece)
            yield piece
            if not member.eof:
                break
            data, member = member.unused_data.lstrip(b"\0"), None
        offset += len(step)
    if is_empty:
        raise FormatError(f"is empty: there is no {codec.name} data in it", offset=offset)
    if member:
        raise FormatError(f"its {codec.name} data was cut off, after {size:,} decompressed bytes", offset=offset)


def _step(codec: Codec, member: Decompressor, data: bytes, offset: int, size: int) -> bytes:
    try:
        return member.decompress(data)
    except codec.errors as error:
        told = f"its {codec.name} data cannot be decompressed further than to {size:,} bytes: {error}"
        raise FormatError(told, offset=offset) from error


def find(path: str, identity: FileIdentity) -> ScratchFile | None:
    """The decompressed form of the file at a path that is `identity`, if it is in the scratch store."""
    return Scratch.configured().find(scratch_name(path, identity))


def decompressed(path: str, identity: FileIdentity, progress: Progress = lambda done, total: None) -> ScratchFile:
    """The decompressed form of a file, made if need be. `progress` is told the bytes of the file that are done."""
    codec = codec_of(path)
    file = LocalFile(path, identity)

    def steps() -> Iterator[bytes]:
        for offset in range(0, identity.size, BLOCK_SIZE):
            progress(offset, identity.size)
            block = file.read(offset, min(BLOCK_SIZE, identity.size - offset))
            yield from (block[start : start + STEP_SIZE] for start in range(0, len(block), STEP_SIZE))
        file.open()  # it must still be what it was when we began
        progress(identity.size, identity.size)

    try:
        at_least = codec.size_at_least(file)
        return Scratch.configured().make(scratch_name(path, identity), decompress(codec, steps()), at_least)
    except TouchfsError as error:
        error.at(path)
        raise
    finally:
        file.close()


def scratch_name(path: str, identity: FileIdentity) -> str:
    """The name in the scratch store of the decompressed form of a file."""
    told = f"{os.path.realpath(path)}\0{identity.size}\0{identity.mtime_ns}\0{identity.inode}"
    return hashlib.blake2b(told.encode(errors="surrogateescape"), digest_size=16).hexdigest()


class DecompressedFile(LocalFile):
    """The decompressed form of a file, as a source. Opening it verifies that the file is still the same."""

    __slots__ = ("_compressed", "_compressed_identity")

    def __init__(self, compressed: str, identity: FileIdentity) -> None:
        super().__init__(Scratch.configured().path(scratch_name(compressed, identity)))
        self._compressed = compressed
        self._compressed_identity = identity

    def open(self) -> None:
        try:
            same = self._compressed_identity.matches(os.stat(self._compressed))
        except OSError as error:
            if isinstance(error, FileNotFoundError | NotADirectoryError):
                raise ChangedError("was removed since it was indexed", path=self._compressed) from error
            raise SourceError(error.strerror or str(error), path=self._compressed) from error
        if not same:
            self.close()
            raise ChangedError("was replaced or changed since it was indexed", path=self._compressed)
        super().open()

    def _open(self) -> int:
        return open_alone(self.path)

    def _failed(self, error: OSError, offset: int) -> SourceError | NotFoundError | ChangedError:
        failure = super()._failed(error, offset)
        if isinstance(failure, NotFoundError | ChangedError):
            told = "its decompressed form was evicted from the scratch store: `touchfs reload`, or mount again"
            return SourceError(told, path=self._compressed)
        return failure

    def __reduce__(self) -> tuple[type[DecompressedFile], tuple[str, FileIdentity]]:
        return DecompressedFile, (self._compressed, self._compressed_identity)
