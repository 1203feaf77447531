"""The form of images that are not in the shard: its rows name files, and ranges and members of files.

Which places they may name, the user says (`Limits.locations`), and not the catalog. A range of a file of this machine
is read there, if the file is still the one that was indexed. All else is fetched as a whole, and kept in the scratch
store.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import cast

from touchfs.core.errors import ChangedError, FormatError, NotFoundError, SourceError
from touchfs.core.extent import Buffer, Content, Extent
from touchfs.form.base import Form
from touchfs.interleaved.fetch.pieces import ItemPiece, PieceAccess, find_piece
from touchfs.interleaved.forms.made import MadeContent
from touchfs.interleaved.layout.file_group import verify_checksum
from touchfs.interleaved.layout.source_ref import SourceRef, parse_source_ref
from touchfs.limits import Limits
from touchfs.source.fingerprint import Fingerprint
from touchfs.source.named.locations import LocalPlace, Locations
from touchfs.source.store import StoredFile

# The size of the image in bytes, or −1; the size, mtime and inode of the local file that has it, or a size of −1. The
# locator follows.
_KNOWN = struct.Struct("<qqqQ")


def located_detail(source_ref: str, size: int | None, file: Fingerprint | None) -> bytes:
    """The detail of the image that a locator means. Its size is None if unknown, and `file` if it is not local."""
    found = (-1, 0, 0) if file is None else (file.size, file.mtime_ns, file.inode or 0)
    return _KNOWN.pack(-1 if size is None else size, *found) + source_ref.encode("utf-8", "replace")


def _parse(detail: bytes) -> tuple[int | None, Fingerprint | None, str]:
    if len(detail) < _KNOWN.size:
        raise FormatError("the catalog's description of an image is damaged: index with --force")
    size, file_size, mtime_ns, inode = _KNOWN.unpack_from(detail)
    file = None if file_size < 0 else Fingerprint(file_size, mtime_ns, inode or None)
    return (None if size < 0 else size), file, detail[_KNOWN.size :].decode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class LocatedItem(Form):
    """`located`: an image that a row names. `detail` is of `located_detail`; relative paths begin at the shard."""

    def __str__(self) -> str:
        return "located"

    def size(self, length: int, detail: bytes) -> int | None:
        return _parse(detail)[0]

    def known_size(self, extent: Extent, detail: bytes, limits: Limits) -> int | None:
        content = self.content(extent, detail, limits)
        data = content.find() if isinstance(content, MadeContent) else None
        return self.size(extent.size, detail) if data is None else len(data)

    def content(self, extent: Extent, detail: bytes, limits: Limits) -> Content:
        """Raises LocationError for a place that may not be opened."""
        size, fingerprint, text = _parse(detail)
        ref = parse_source_ref(text)
        piece = find_piece(ref)
        if piece is None:
            raise FormatError("the catalog's locator has no path: index with --force")
        places = Locations((cast("StoredFile", extent.source).path,), limits.locations)
        place = places.find(piece.path)
        extent = Extent(extent.source, 0, 1)
        if isinstance(place, LocalPlace):
            file = _LocatedFile(place.file(fingerprint))
            if is_plain(ref, piece) and size is not None:
                return Extent(file, piece.offset, size)
            extent = Extent(file, 0, 1)  # so that another version of the file is another content

        def make() -> bytes:
            return _fetch(ref, piece, places, limits.decoded)

        return MadeContent(extent, f"{self}\0{text}", make, size)


LOCATED = LocatedItem()


class _LocatedFile:
    """A file that data names, as a source. That it is gone or changed is an error of this image alone: its name, and
    the shard that names it, are as they were.
    """

    __slots__ = ("_file",)

    def __init__(self, file: StoredFile) -> None:
        self._file = file

    @property
    def identity(self) -> str | None:
        """A text that no other bytes have; None before the first read."""
        return self._file.identity

    def read(self, offset: int, length: int) -> Buffer:
        try:
            return self._file.read(offset, length)
        except (ChangedError, NotFoundError) as error:
            raise SourceError(f"{error.message}: index with --force", path=error.path) from error

    def read_nowait(self, offset: int, length: int) -> Buffer | None:
        return self._file.read_nowait(offset, length)


def is_plain(ref: SourceRef, piece: ItemPiece) -> bool:
    """True if an image is a range of a file as it is, or the whole file."""
    return piece.access is not PieceAccess.TAR and ref.frame_index is None and ref.checksum is None


def _fetch(ref: SourceRef, piece: ItemPiece, places: Locations, limit: int) -> bytes:
    from touchfs.interleaved.fetch import fetch_pieces
    from touchfs.interleaved.items.tiff_frames import cut_frames

    (fetched,) = fetch_pieces((piece,), places, limit)
    if fetched.data is None:
        raise SourceError(fetched.error or "cannot be fetched", path=piece.path)
    if ref.checksum is not None:
        verify_checksum(ref.checksum, fetched.data)
    if ref.frame_index is None:
        return fetched.data
    frame = cut_frames(fetched.data, (ref.frame_index,), limit)[ref.frame_index]
    if frame is None:
        raise FormatError(f"failed to extract frame {ref.frame_index} from {piece.name}")
    return frame.data
