"""A file that was split into pieces: several local files end to end, as one source.

A piece is opened when bytes of it are first wanted. All are opened and verified by `open`, so that one that is gone or
changed is known before the first read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from touchfs.errors import SourceError
from touchfs.extent import Buffer, Extent, Rope, Source
from touchfs.source.local import FileIdentity, LocalFile


class SplitFile:
    """The files at some paths, in this order. Each must still be what its identity says."""

    __slots__ = ("_files", "_identities", "_rope", "path", "size")

    def __init__(self, identities: Mapping[str, FileIdentity]) -> None:
        self._identities = dict(identities)
        self._files = [LocalFile(path, identity) for path, identity in identities.items()]
        sizes = [identity.size for identity in identities.values()]
        self._rope = Rope([Extent(file, 0, size) for file, size in zip(self._files, sizes, strict=True)])
        self.size = self._rope.size
        self.path = next(reversed(self._identities), "")  # the last one's, where the bytes come to an end

    @property
    def expected_size(self) -> int:
        return self.size

    def open(self) -> None:
        for file in self._files:
            file.open()

    @property
    def is_verified(self) -> bool:
        """Whether all were within the last second."""
        return all(file.is_verified for file in self._files)

    def close(self) -> None:
        """Give the descriptors up; a further read opens the files again."""
        for file in self._files:
            file.close()

    def read(self, offset: int, length: int) -> Buffer:
        data = self._rope.read(offset, length)
        if len(data) < length:
            raise SourceError("the last piece ends here, before the data that the index names", path=self.path)
        return data

    def read_into(self, offset: int, buffer: memoryview) -> None:
        """Fill a view of bytes."""
        buffer[:] = self.read(offset, len(buffer))

    def read_nowait(self, offset: int, length: int) -> Buffer | None:
        data = self._rope.read_nowait(offset, length)
        return data if data is not None and len(data) == length else None

    def __repr__(self) -> str:
        return f"SplitFile({list(self._identities)!r})"

    def __reduce__(self) -> tuple[type[SplitFile], tuple[dict[str, FileIdentity]]]:
        return SplitFile, (self._identities,)


# What a shard's files are opened as.
StoredFile = LocalFile | SplitFile

if TYPE_CHECKING:
    _: type[Source] = SplitFile
