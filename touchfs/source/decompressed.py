"""Compressed files: gzip, Zstandard, xz and bzip2, recognised by the suffix.

No byte range is read from a compressed file. It is decompressed once, from its beginning to its end, into the scratch
store. Its name there is a hash of its path and its `Fingerprint`, so a changed file gets a new name, and a
`DecompressedFile` of the old version raises ChangedError.

All four formats may have several members (frames, streams) end to end, and zeros after them, as tapes are padded.
Other trailing data is ignored with a warning in gzip and bzip2 files, as their own programs do, and is damage in the
others. An end within a member is damage: the data before it is not served, as it may be wrong.

Decompressors get little input at a time, so their output fits into memory, whatever it claims: 4 KiB become 4 MiB
(gzip), 30 MiB (xz), 80 MiB (bzip2) or 128 MiB (Zstandard) at most. The store's limit bounds the total output; if the
size is known in advance and too large, the file is refused at once.
"""

from __future__ import annotations

import bz2
import io
import logging
import lzma
import os
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, BinaryIO, NamedTuple, Protocol

from touchfs.core.errors import ChangedError, FormatError, MissingExtraError, NotFoundError, SourceError, TouchfsError
from touchfs.core.extent import Buffer
from touchfs.core.extras import install_hint
from touchfs.core.location import Location
from touchfs.core.names import hex_digest
from touchfs.core.progress import Progress
from touchfs.core.urls import shown
from touchfs.posix.trust import open_trusted_unique
from touchfs.source.data import DATA
from touchfs.source.fingerprint import Fingerprint
from touchfs.source.local import LocalFile
from touchfs.source.scratch.file import ScratchFile
from touchfs.source.scratch.store import Scratch
from touchfs.source.store import StoredFile

log = logging.getLogger(__name__)

# The ends of names, in small letters: those of JSON lines, and of what is compressed.
LINES_SUFFIXES = (".jsonl", ".ndjson")
GZIP_LINES_SUFFIXES = tuple(f"{lines}.gz" for lines in LINES_SUFFIXES)
OTHER_LINES_SUFFIXES = tuple(f"{lines}{end}" for lines in LINES_SUFFIXES for end in (".zst", ".xz", ".bz2"))
TAR_SUFFIXES = (".tar.gz", ".tgz", ".tar.zst", ".tzst", ".tar.xz", ".txz", ".tar.bz2", ".tbz2")
BLOCK_SIZE = 1 << 20
STEP_SIZE = 1 << 12
# xz files made with `-9` need 64 MiB.
XZ_MEMORY_MAX = 1 << 30
_XZ_INDEX_MAX = 1 << 20
# Of deflate: two bits may stand for 258 bytes.
_GZIP_RATIO_MAX = 1032


class Decompressor(Protocol):
    """A decompressor of one member, with the interface of `bz2.BZ2Decompressor`."""

    @property
    def eof(self) -> bool:
        """True if the end of the member was reached."""
        ...

    @property
    def unused_data(self) -> bytes:
        """The input after the end of the member."""
        ...

    def decompress(self, data: Buffer, /) -> bytes:
        """Return the output for more input. Raises one of `Codec.errors`."""
        ...


class Codec(NamedTuple):
    """A compression format. `member` makes a decompressor; `errors` are those that it raises. `size_at_least` reads a
    lower bound of the decompressed size from the file's header or footer; 0 if it has none. After a member, data that
    does not begin with `magic` is ignored; if that is empty, such data is damage.
    """

    name: str
    member: Callable[[], Decompressor]
    errors: tuple[type[Exception], ...]
    size_at_least: Callable[[StoredFile], int]
    magic: bytes = b""


def _gzip_size(file: StoredFile) -> int:
    """The last four bytes are the size of the last member, modulo 2^32, unless other data follows it."""
    size = int.from_bytes(file.read(file.size - 4, 4), "little") if file.size >= 18 else 0
    return size if size <= _GZIP_RATIO_MAX * file.size else 0


def _xz_size(file: StoredFile) -> int:
    """Return the sum of the sizes in the index of the last stream."""
    end = file.size - 12
    footer = file.read(end, 12) if end >= 0 else b""
    size = 4 * (int.from_bytes(footer[4:8], "little") + 1)
    if footer[10:] != b"YZ" or size > min(end, _XZ_INDEX_MAX):
        return 0
    numbers = list(_xz_numbers(file.read(end - size + 1, size - 1)))
    return sum(numbers[2 : 2 * numbers[0] + 1 : 2]) if numbers else 0


def _xz_numbers(data: Buffer) -> Iterator[int]:
    """Yield the number of blocks, then each block's compressed and decompressed size; 7 bits a byte, lowest first."""
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

    def size_at_least(file: StoredFile) -> int:
        """Return the content size of the first frame."""
        try:
            size = zstandard.get_frame_parameters(file.read(0, min(file.size, 18))).content_size
        except zstandard.ZstdError:
            return 0
        return 0 if size == zstandard.CONTENTSIZE_UNKNOWN else size

    def member() -> Decompressor:
        return zstandard.ZstdDecompressor().decompressobj()

    return Codec("Zstandard", member, (zstandard.ZstdError,), size_at_least)


_GZIP = Codec("gzip", lambda: zlib.decompressobj(wbits=31), (zlib.error,), _gzip_size, b"\x1f\x8b")
_XZ = Codec("xz", lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, XZ_MEMORY_MAX), (lzma.LZMAError,), _xz_size)
_BZIP2 = Codec("bzip2", bz2.BZ2Decompressor, (OSError,), lambda file: 0, b"BZh")
_BY_SUFFIX: dict[str, Callable[[], Codec]] = {
    ".gz": lambda: _GZIP,
    ".tgz": lambda: _GZIP,
    ".xz": lambda: _XZ,
    ".txz": lambda: _XZ,
    ".bz2": lambda: _BZIP2,
    ".tbz2": lambda: _BZIP2,
    ".zst": _zstd,
    ".tzst": _zstd,
}


def codec_of(path: str) -> Codec:
    """Return the codec for a path's suffix. Raises MissingExtraError if its decompressor is not installed."""
    try:
        return _BY_SUFFIX[os.path.splitext(path)[1].lower()]()
    except ImportError as error:
        message = f"decompressing it needs the zstd extra: `{install_hint('zstd')}`"
        raise MissingExtraError(message, path=path) from error


def decompress(codec: Codec, steps: Iterable[bytes], path: str = "its file") -> Iterator[bytes]:
    """Yield the decompressed bytes of a file whose bytes come in steps of at most `STEP_SIZE`. A warning names `path`.

    Raises FormatError with the offset in the compressed file.
    """
    member: Decompressor | None = None
    is_empty = True
    offset = size = ignored = 0
    for step in steps:
        data = step if member else step.lstrip(b"\0")
        while data:
            if ignored or not (is_empty or member or codec.magic.startswith(data[: len(codec.magic)])):
                ignored += len(data)
                break
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
        message = f"cannot be decompressed: its {codec.name} data was cut off, after {size:,} decompressed bytes"
        raise FormatError(message, offset=offset)
    if ignored:
        log.warning("%s: %s bytes after its %s data are ignored", shown(path), f"{ignored:,}", codec.name)


class _Pieces(io.RawIOBase):
    """Pieces of bytes as a file that is read from its beginning to its end."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._left = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._left:
            try:
                self._left = memoryview(next(self._pieces))
            except StopIteration:
                return 0
        count = min(len(buffer), len(self._left))
        buffer[:count], self._left = self._left[:count], self._left[count:]
        return count


def decompressed_stream(path: str, file: BinaryIO) -> BinaryIO:
    """The decompressed bytes of an open file with this path, to be read in order. Reading raises FormatError."""
    steps = iter(lambda: file.read(STEP_SIZE), b"")

    def pieces() -> Iterator[bytes]:
        try:
            yield from decompress(codec_of(path), steps, path)
        except FormatError as error:
            error.at(path)
            raise

    return io.BufferedReader(_Pieces(pieces()), BLOCK_SIZE)


def _step(codec: Codec, member: Decompressor, data: bytes, offset: int, size: int) -> bytes:
    try:
        return member.decompress(data)
    except codec.errors as error:
        message = f"its {codec.name} data cannot be decompressed further than to {size:,} bytes: {error}"
        raise FormatError(message, offset=offset) from error


def find(path: str, fingerprint: Fingerprint) -> ScratchFile | None:
    """Return the decompressed form of the file at a path with this fingerprint, if the scratch store has it."""
    return Scratch.configured().find(scratch_name(path, fingerprint))


def decompressed(
    path: str, fingerprint: Fingerprint, progress: Progress = lambda done, total: None, *, name: str | None = None
) -> ScratchFile:
    """Return the decompressed form of a file, made if necessary. `progress` gets the compressed bytes done and total.
    `name` is that in the scratch store, by default the one of this version.

    Raises FormatError, ChangedError, SourceError or MissingExtraError.
    """
    codec = codec_of(path)
    file = DATA.open(path, fingerprint)

    def steps() -> Iterator[bytes]:
        for offset in range(0, fingerprint.size, BLOCK_SIZE):
            progress(offset, fingerprint.size)
            block = file.read(offset, min(BLOCK_SIZE, fingerprint.size - offset))
            yield from (block[start : start + STEP_SIZE] for start in range(0, len(block), STEP_SIZE))
        file.open()  # verify that the file did not change meanwhile
        progress(fingerprint.size, fingerprint.size)

    try:
        at_least = codec.size_at_least(file)
        return Scratch.configured().make(
            name or scratch_name(path, fingerprint), decompress(codec, steps(), path), at_least
        )
    except TouchfsError as error:
        error.at(path)
        raise
    finally:
        file.close()


def scratch_name(path: str, fingerprint: Fingerprint) -> str:
    """Return the name in the scratch store of the decompressed form of a file."""
    return scratch_name_of_resolved(Location.of(path).resolved, fingerprint)


def scratch_name_of_resolved(resolved: str, fingerprint: Fingerprint) -> str:
    """Like `scratch_name`, for the `resolved` path of a file: looks at no data."""
    text = f"{resolved}\0{fingerprint.hashed}"
    return hex_digest(text.encode(errors="surrogateescape"))


class DecompressedFile(LocalFile):
    """The decompressed form of a file, as a source. Opening it verifies that the compressed file is unchanged."""

    __slots__ = ("_compressed", "_compressed_fingerprint")

    def __init__(self, compressed: str, fingerprint: Fingerprint) -> None:
        super().__init__(Scratch.configured().path(scratch_name(compressed, fingerprint)))
        self._compressed = compressed
        self._compressed_fingerprint = fingerprint

    @property
    def identity(self) -> str | None:
        """The identity of the compressed file, as its decompressed form may be evicted and made again."""
        return f"{Location.of(self._compressed).absolute.path}\0{self._compressed_fingerprint.hashed}"

    def plain_range(self, offset: int, length: int) -> None:
        """None: see `StoredFile.plain_range`. It is a copy, which may be removed."""

    def open(self) -> None:
        """Open and verify now. Raises ChangedError if the compressed file changed, and SourceError."""
        try:
            found = DATA.stat(self._compressed).fingerprint
        except NotFoundError as error:
            raise ChangedError("was removed since it was indexed", path=self._compressed) from error
        if not self._compressed_fingerprint.matches(found):
            self.close()
            raise ChangedError("was replaced or changed since it was indexed", path=self._compressed)
        super().open()

    def _open(self) -> int:
        return open_trusted_unique(self.path)

    def _convert_error(self, error: OSError, offset: int) -> SourceError | NotFoundError | ChangedError:
        failure = super()._convert_error(error, offset)
        if isinstance(failure, NotFoundError | ChangedError):
            message = "its decompressed form was evicted from the scratch store: `touchfs reload`, or mount again"
            return SourceError(message, path=self._compressed)
        return failure

    def __reduce__(self) -> tuple[type[DecompressedFile], tuple[str, Fingerprint]]:
        return DecompressedFile, (self._compressed, self._compressed_fingerprint)
