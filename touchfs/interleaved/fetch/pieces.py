"""Pieces of files: what a locator means, and has to be read once for all rows that name it.

    missing   there is no path
    range     `size` bytes at `offset`: of a member of a tar, or of any file
    tar       a member of a tar whose range is not known, or of which it says nothing, as the tar is compressed
    direct    the whole file

Source: nemo_curator/stages/interleaved/utils/materialization.py of NeMo Curator 1.4. It reads the whole file for a
range without a member, and takes ranges in a decompressed tar for ranges of the compressed file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum
from typing import NamedTuple

from touchfs.core.errors import FormatError
from touchfs.core.urls import shown
from touchfs.interleaved.layout.source_ref import SourceRef
from touchfs.source.decompressed import TAR_SUFFIXES

# What gzip, xz, bzip2 and Zstandard begin with, and the bytes that suffice to see it.
_MAGICS = (b"\x1f\x8b\x08", b"\xfd7zXZ\0", b"BZh", b"\x28\xb5\x2f\xfd")
HEAD_SIZE = 6


class PieceAccess(Enum):
    """The way in which a piece is read: a range of a file, a member of a tar, or a whole file."""

    RANGE = "range"
    TAR = "tar"
    DIRECT = "direct"


class ItemPiece(NamedTuple):
    """Bytes that a locator means. Without a size, it is a member of a tar, or a whole file."""

    path: str
    member: str | None = None
    offset: int = 0
    size: int | None = None

    @property
    def access(self) -> PieceAccess:
        """The way in which it is read."""
        if self.size is not None:
            return PieceAccess.RANGE
        return PieceAccess.DIRECT if self.member is None else PieceAccess.TAR

    @property
    def name(self) -> str:
        """Its name in errors, without the query of a URL."""
        return f"path '{shown(self.path)}'" if self.member is None else f"member '{self.member}'"


class FetchedPiece(NamedTuple):
    """The bytes of a piece, or the text of the error that its rows get."""

    piece: ItemPiece
    data: bytes | None
    error: str | None = None


def range_result(piece: ItemPiece, data: bytes) -> FetchedPiece:
    """Return the result for a range whose bytes were read, which may be fewer at the end of the file."""
    if not data:
        return FetchedPiece(piece, None, f"empty range read for {piece.name}")
    if len(data) != piece.size:
        return unread(piece)
    return FetchedPiece(piece, data)


def unread(piece: ItemPiece) -> FetchedPiece:
    """Return the error of a piece that cannot be read."""
    error = f"range read error for {piece.name}" if piece.access is PieceAccess.RANGE else "failed to read path"
    return FetchedPiece(piece, None, error)


def failed_pieces(pieces: Iterable[ItemPiece], error: str) -> Iterator[FetchedPiece]:
    for piece in pieces:
        yield FetchedPiece(piece, None, error)


def find_piece(ref: SourceRef) -> ItemPiece | None:
    """Return the piece that a locator means; None if it has no path.

    Raises FormatError if it means no bytes: a range of a compressed tar without a member, or an offset without a size.
    """
    if not ref.path:
        return None
    member = ref.member or None
    if is_compressed_tar(ref.path):
        if member is None and ref.byte_size is not None:
            raise FormatError(f"ranges of a compressed tar are not read: {shown(ref.path)!r}")
        return ItemPiece(ref.path, member)
    if member is None:
        if ref.byte_size is None and ref.byte_offset is not None:
            raise FormatError(f"an offset without a size: {shown(ref.path)!r}")
        return ItemPiece(ref.path, None, ref.byte_offset or 0, ref.byte_size)
    # Curator takes a size of 0 for one that is not known.
    if ref.byte_offset is None or not ref.byte_size:
        return ItemPiece(ref.path, member)
    return ItemPiece(ref.path, member, ref.byte_offset, ref.byte_size)


def is_compressed_tar(path: str) -> bool:
    """True if the name of a file or URL says that it is a compressed tar."""
    return path.partition("?")[0].lower().endswith(TAR_SUFFIXES)


def is_compressed(head: bytes) -> bool:
    """True if a file that begins with these bytes is compressed, whatever its name says."""
    return head.startswith(_MAGICS)
