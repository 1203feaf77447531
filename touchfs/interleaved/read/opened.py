"""The files of a reader, opened for random access.

A compressed file is decompressed into the scratch store first, so what is read is a plain file. Its ranges are not
those of the compressed file, so nobody else may be given them (`is_plain`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from touchfs.core.location import Location
from touchfs.source.data import DATA
from touchfs.source.decompressed import TAR_SUFFIXES, decompressed
from touchfs.source.remote.storage_options import give_options
from touchfs.source.scratch.file import ScratchFile
from touchfs.source.store import StoredFile


class OpenedShard:
    """A shard that is open: a tar, perhaps compressed, or a Parquet file.

    `plain_path` names a file with the bytes that `read` gives: the shard itself if `is_plain`, else its decompressed
    form, which stays until `close`. Raises NotFoundError, SourceError, FormatError or MissingExtraError.
    """

    def __init__(self, path: str, storage_options: Mapping[str, Any]) -> None:
        self.path = path
        self.is_plain = not path.lower().endswith(TAR_SUFFIXES)
        self._scratch: ScratchFile | None = None
        if Location.of(path).is_url:
            give_options(path, storage_options)
        self._file = DATA.open(path)
        self._file.open()
        if not self.is_plain:
            self._scratch = _decompressed(self._file, path)
            self._file.close()
            self._file = DATA.open(self._scratch.path)
        self.plain_path = path if self._scratch is None else self._scratch.path
        self.size = self._file.size

    def read(self, offset: int, length: int) -> bytes:
        return self._file.read(offset, length)

    def read_nowait(self, offset: int, length: int) -> None:
        """See `Source.read_nowait`: it always waits."""

    def close(self) -> None:
        """Close the file, and allow the eviction of its decompressed form."""
        self._file.close()
        if self._scratch is not None:
            self._scratch.close()


def _decompressed(file: StoredFile, path: str) -> ScratchFile:
    """The decompressed form. That of a file whose store says nothing about versions is not used again."""
    fingerprint = DATA.stat(path).fingerprint
    return decompressed(path, fingerprint, name=None if file.identity else uuid4().hex)
