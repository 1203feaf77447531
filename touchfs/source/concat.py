"""A file that was split into pieces: several files end to end, as one source.

Each piece is opened at its first read. `open` opens and verifies all of them, so that a missing or changed piece is
noticed before the first read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from touchfs.core.errors import SourceError
from touchfs.core.extent import Buffer, Extent, Rope
from touchfs.source.data import DATA
from touchfs.source.fingerprint import Files, Fingerprint
from touchfs.source.store import PlainRange, StoredFile


class SplitFile:
    """A source of several files end to end, in the order of `files`. Each must still match its fingerprint."""

    __slots__ = ("_fingerprints", "_pieces", "_rope", "path", "size")

    def __init__(self, files: Files) -> None:
        self._fingerprints = dict(files)
        self._pieces = [DATA.open(path, fingerprint) for path, fingerprint in files.items()]
        self._rope = Rope([Extent(piece, 0, piece.size) for piece in self._pieces])
        self.size = self._rope.size
        self.path = next(reversed(self._fingerprints), "")  # the last piece, for errors about the end of the data

    @property
    def fingerprint(self) -> None:
        """None: each piece has its own."""
        return None

    @property
    def identity(self) -> str | None:
        """The identities of all pieces; None if one of them has none."""
        identities = [piece.identity for piece in self._pieces]
        return None if None in identities else "\0".join(map(str, identities))

    def open(self) -> None:
        """Open and verify all pieces now. Raises ChangedError, NotFoundError or SourceError."""
        for piece in self._pieces:
            piece.open()

    def plain_range(self, offset: int, length: int) -> PlainRange | None:
        for piece in self._pieces:
            if 0 <= offset <= offset + length <= piece.size:
                return piece.plain_range(offset, length)
            offset -= piece.size
        return None

    @property
    def is_verified(self) -> bool:
        """True if all pieces were verified within the last second."""
        return all(piece.is_verified for piece in self._pieces)

    def close(self) -> None:
        """Close the descriptors; a later read opens the files again."""
        for piece in self._pieces:
            piece.close()

    def read(self, offset: int, length: int) -> bytes:
        data = self._rope.read(offset, length)
        if len(data) < length:
            raise SourceError("the last piece ends here, before the data that the index names", path=self.path)
        return bytes(data)

    def read_into(self, offset: int, buffer: memoryview) -> None:
        """Fill a view of bytes with the data at `offset`."""
        buffer[:] = self.read(offset, len(buffer))

    def read_nowait(self, offset: int, length: int) -> Buffer | None:
        data = self._rope.read_nowait(offset, length)
        return data if data is not None and len(data) == length else None

    def __repr__(self) -> str:
        return f"SplitFile({list(self._fingerprints)!r})"

    def __reduce__(self) -> tuple[type[SplitFile], tuple[dict[str, Fingerprint]]]:
        return SplitFile, (self._fingerprints,)


if TYPE_CHECKING:
    _: type[StoredFile] = SplitFile
