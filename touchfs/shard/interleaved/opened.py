"""The files of a reader, opened for random access. The user named them, so any of fsspec's file systems will do.

A compressed file is decompressed into the scratch store first, so what is read is a plain file. Its ranges are not
those of the compressed file, so nobody else may be given them (`is_plain`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from uuid import uuid4

from touchfs.errors import NotFoundError, SourceError, TouchfsError
from touchfs.names import hex_digest
from touchfs.shard.interleaved.store_options import is_remote
from touchfs.source.data import DATA
from touchfs.source.decompressed import BLOCK_SIZE, STEP_SIZE, TAR_SUFFIXES, codec_of, decompress, decompressed
from touchfs.source.scratch.store import Scratch, ScratchFile
from touchfs.source.store import StoredFile


class RemoteFile:
    """A file of fsspec's, as a source. Raises NotFoundError or SourceError."""

    def __init__(self, path: str, storage_options: Mapping[str, Any]) -> None:
        from fsspec.core import url_to_fs

        from touchfs.items.located.remote import StreamSource

        self.path = path
        try:
            self._files, self._root = url_to_fs(path, **storage_options)
            self._file = self._files.open(self._root, "rb")
            self._source = StreamSource(self._file)
            self.size = int(self._source.size)
        except FileNotFoundError as error:
            raise NotFoundError("no such file or directory", path=path) from error
        except _FAILURES as error:
            raise SourceError(f"cannot be opened: {error}", path=path) from error

    def read(self, offset: int, length: int) -> bytes:
        """See `Source.read`."""
        try:
            return self._source.read(offset, length)
        except SourceError as error:
            raise error.at(self.path) from error.__cause__
        except _FAILURES as error:
            raise SourceError(f"cannot be read: {error}", path=self.path, offset=offset) from error

    def version(self) -> str:
        """Return a text that is another one when the file has changed: of HTTP, what the server says of it. If it says
        nothing, the text is always another one. Raises SourceError.
        """
        from touchfs.items.located.remote import is_http

        try:
            if not is_http(self._files):
                return str(self._files.ukey(self._root))
            # The `ukey` of fsspec's HTTP files is that of their URL alone.
            info = self._files.info(self._root)
        except _FAILURES as error:
            raise SourceError(f"cannot be looked up: {error}", path=self.path) from error
        said = [str(info[name]) for name in _HTTP_VERSIONS if name in info]
        return "\0".join((str(self.size), *said)) if said else uuid4().hex

    def close(self) -> None:
        """Close the file."""
        self._file.close()


# What fsspec passes on of a reply's header, and changes with the file.
_HTTP_VERSIONS = ("ETag", "Last-Modified", "Content-MD5", "Digest")
# What file systems of fsspec raise when a server does not answer as it should.
_FAILURES = (OSError, ValueError, TypeError, ImportError)


class OpenedShard:
    """A shard that is open: a tar, perhaps compressed, or a Parquet file.

    `plain_path` names a file with the bytes that `read` gives: the shard itself if `is_plain`, else its decompressed
    form, which stays until `close`. Raises NotFoundError, SourceError, FormatError or MissingExtraError.
    """

    def __init__(self, path: str, storage_options: Mapping[str, Any]) -> None:
        self.path = path
        self.is_plain = not path.lower().endswith(TAR_SUFFIXES)
        self._scratch: ScratchFile | None = None
        self._file: StoredFile | RemoteFile
        if is_remote(path):
            self._file = RemoteFile(path, storage_options)
            if not self.is_plain:
                self._scratch = _decompressed(self._file)
        else:
            self._file = DATA.open(path)
            self._file.open()
            if not self.is_plain:
                self._scratch = decompressed(path, DATA.stat(path).fingerprint)
        if self._scratch is not None:
            self._file.close()
            self._file = DATA.open(self._scratch.path)
        self.plain_path = path if self._scratch is None else self._scratch.path
        self.size = self._file.size

    def read(self, offset: int, length: int) -> bytes:
        """See `Source.read`."""
        return self._file.read(offset, length)

    def read_nowait(self, offset: int, length: int) -> None:
        """See `Source.read_nowait`: it always waits."""

    def close(self) -> None:
        """Close the file, and allow the eviction of its decompressed form."""
        self._file.close()
        if self._scratch is not None:
            self._scratch.close()


def _decompressed(file: RemoteFile) -> ScratchFile:
    """The decompressed form of a remote file, made if necessary."""
    codec = codec_of(file.path)

    def steps() -> Iterator[bytes]:
        for offset in range(0, file.size, BLOCK_SIZE):
            block = file.read(offset, min(BLOCK_SIZE, file.size - offset))
            yield from (block[start : start + STEP_SIZE] for start in range(0, len(block), STEP_SIZE))

    try:
        return Scratch.configured().make(
            hex_digest(f"{file.path}\0{file.version()}".encode(errors="surrogateescape")), decompress(codec, steps())
        )
    except TouchfsError as error:
        error.at(file.path)
        raise
    finally:
        file.close()
