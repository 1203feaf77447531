"""Read pieces of a file of this machine. A compressed tar is decompressed once, into the scratch store."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from touchfs.core.errors import FormatError, TouchfsError
from touchfs.interleaved.fetch.pieces import (
    HEAD_SIZE,
    FetchedPiece,
    ItemPiece,
    PieceAccess,
    is_compressed,
    range_result,
    unread,
)
from touchfs.interleaved.fetch.tar_members import FoundMember, member_results, read_members
from touchfs.source.decompressed import TAR_SUFFIXES, DecompressedFile, decompressed
from touchfs.source.store import StoredFile

log = logging.getLogger(__name__)


def fetch_local(file: StoredFile, pieces: list[ItemPiece], limit: int) -> Iterator[FetchedPiece]:
    """Yield the result of each piece. All pieces are of the same file."""
    try:
        file.open()
        has_ranges = not is_compressed(file.read(0, min(file.size, HEAD_SIZE)))
    except TouchfsError as error:
        log.warning("not read: %s", error)
        yield from map(unread, pieces)
        return
    in_tar = []
    try:
        for piece in pieces:
            if piece.access is PieceAccess.DIRECT:
                yield _whole(file, piece, limit)
            elif piece.access is PieceAccess.RANGE and (has_ranges or not piece.member):
                yield _range(file, piece, limit)
            else:
                in_tar.append(piece)
        yield from member_results(in_tar, _members(file, in_tar, has_ranges, limit), (TouchfsError,))
    finally:
        file.close()


def _whole(file: StoredFile, piece: ItemPiece, limit: int) -> FetchedPiece:
    result = _read(file, piece, 0, file.size, limit)
    return unread(piece) if result is None else FetchedPiece(piece, result)


def _range(file: StoredFile, piece: ItemPiece, limit: int) -> FetchedPiece:
    available = max(min(piece.size or 0, file.size - piece.offset), 0)
    result = _read(file, piece, piece.offset, available, limit)
    return unread(piece) if result is None else range_result(piece, result)


def _read(file: StoredFile, piece: ItemPiece, offset: int, size: int, limit: int) -> bytes | None:
    if size > limit:
        log.warning("not read: %s has %d bytes, and the limit is %d: --max-decoded raises it", piece.name, size, limit)
        return None
    try:
        return file.read(offset, size)
    except TouchfsError as error:
        log.warning("not read: %s", error)
        return None


def _members(file: StoredFile, pieces: list[ItemPiece], is_plain: bool, limit: int) -> Iterator[FoundMember]:
    """Yield members of a tar, which is decompressed if necessary. Raises TouchfsError."""
    names = {piece.member: None for piece in pieces if piece.member is not None}
    if names:
        tar = file if is_plain else _decompressed(file)
        yield from read_members(tar, tar.size, names, limit)


def _decompressed(file: StoredFile) -> StoredFile:
    if not file.path.lower().endswith(TAR_SUFFIXES) or file.fingerprint is None:
        raise FormatError(f"is compressed, but its name ends with none of {', '.join(TAR_SUFFIXES)}", path=file.path)
    decompressed(file.path, file.fingerprint)
    return DecompressedFile(file.path, file.fingerprint)
