"""A file that was split into pieces: several local files end to end, as one source.

Each piece is opened at its first read. `open` opens and verifies all of them, so that a missing or changed piece is
noticed before the first read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from touchfs.errors import SourceError
from touchfs.extent import Buffer, Extent, Rope, Source
from touchfs.source.local import FileIdentity, LocalFile


class SplitFile:
    """A source of several files end to end, in the order of `identities`. Each must still match its identity."""

    __slots__ = ("_files", "_identities", "_rope", "path", "size")

    def __init__(self, identities: Mapping[str, FileIdentity]) -> None:
        self._identities = dict(identities)
        self._files = [LocalFile(path, identity) for path, identity in identities.items()]
        sizes = [identity.size for identity in identities.values()]
        self._rope = Rope([Extent(file, 0, size) for file, size in zip(self._files, sizes, strict=True)])
        self.size = self._rope.size
        self.path = next(reversed(self._identities), "")  # the last piece, for errors about the end of the data

    @property
    def expected_size(self) -> int:
        """Size in bytes, as indexed."""
        return self.size

    def open(self) -> None:
        """Open and verify all pieces now. Raises ChangedError, NotFoundError or SourceError."""
        for file in self._files:
            file.open()

    @property
    def is_verified(self) -> bool:
        """True if all pieces were verified within the last second."""
        return all(file.is_verified for file in self._files)

    def close(self) -> None:
        """Close the descriptors; a later read opens the files again."""
        for file in self._files:
            file.close()

    def read(self, offset: int, length: int) -> Buffer:
        """See `Source.read`. Raises SourceError if the last piece ends before the data does."""
        data = self._rope.read(offset, length)
        if len(data) < length:
            raise SourceError("the last piece ends here, before the data that the index names", path=self.path)
        return data

    def read_into(self, offset: int, buffer: memoryview) -> None:
        """Fill a view of bytes with the data at `offset`."""
        buffer[:] = self.read(offset, len(buffer))

    def read_nowait(self, offset: int, length: int) -> Buffer | None:
        """See `Source.read_nowait`."""
        data = self._rope.read_nowait(offset, length)
        return data if data is not None and len(data) == length else None

    def __repr__(self) -> str:
        return f"SplitFile({list(self._identities)!r})"

    def __reduce__(self) -> tuple[type[SplitFile], tuple[dict[str, FileIdentity]]]:
        return SplitFile, (self._identities,)


# The types of source that a shard's files are opened as.
StoredFile = LocalFile | SplitFile

if TYPE_CHECKING:
    _: type[Source] = SplitFile
