"""Read pieces of files of other stores: ranges of all files together, all else file by file."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing
from typing import NamedTuple
from uuid import uuid4

from touchfs.core.errors import TouchfsError
from touchfs.core.extent import Memory
from touchfs.core.urls import shown
from touchfs.interleaved.fetch.pieces import (
    HEAD_SIZE,
    FetchedPiece,
    ItemPiece,
    PieceAccess,
    failed_pieces,
    is_compressed,
    is_compressed_tar,
    range_result,
    unread,
)
from touchfs.interleaved.fetch.tar_members import FoundMember, member_results, read_members
from touchfs.source.data import DATA
from touchfs.source.decompressed import BLOCK_SIZE, STEP_SIZE, codec_of, decompress
from touchfs.source.named.http_client import NoRangesError
from touchfs.source.named.locations import RemotePlace
from touchfs.source.named.remote import RemoteRange, RemoteSource, client_of, read_ranges, read_whole
from touchfs.source.scratch.file import ScratchFile
from touchfs.source.scratch.store import Scratch

log = logging.getLogger(__name__)

# What ranges may have together at most, unless a single one is larger.
RANGES_SIZE = 256 << 20


class _Asked(NamedTuple):
    """A range, and the piece that it is; None for the first bytes of a tar."""

    range: RemoteRange
    piece: ItemPiece | None


def fetch_remote(places: list[tuple[RemotePlace, list[ItemPiece]]], limit: int) -> Iterator[FetchedPiece]:
    """Yield the result of each piece. The pieces of a place are all of its file."""
    files: list[tuple[RemotePlace, list[ItemPiece]]] = []
    for place, pieces in places:
        try:
            client_of(place, limit)
        except TouchfsError as error:
            log.warning("no client for a store: %s", error)
            yield from failed_pieces(pieces, "failed to resolve filesystem")
        else:
            files.append((place, pieces))
    yield from _ranges(
        [(place, piece) for place, pieces in files for piece in pieces if piece.access is PieceAccess.RANGE], limit
    )
    for place, pieces in files:
        for piece in pieces:
            if piece.access is PieceAccess.DIRECT:
                yield _whole(place, piece, limit)
        in_tar = [piece for piece in pieces if piece.access is PieceAccess.TAR]
        yield from member_results(in_tar, _members(place, in_tar, limit), (TouchfsError,))


def _ranges(wanted: list[tuple[RemotePlace, ItemPiece]], limit: int) -> Iterator[FetchedPiece]:
    """Yield ranges, file by file. The first bytes of a tar are read with them, as a compressed tar has no ranges,
    whatever its name is.
    """
    asked: list[_Asked] = []
    tars: set[str] = set()
    for place, piece in wanted:
        if (piece.size or 0) > limit:
            log.warning("not read: %s has %d bytes, and the limit is %d", piece.name, piece.size, limit)
            yield unread(piece)
            continue
        if piece.member is not None and place.url not in tars:
            tars.add(place.url)
            asked.append(_Asked(RemoteRange(place, 0, HEAD_SIZE), None))
        asked.append(_Asked(RemoteRange(place, piece.offset, piece.size or 0), piece))
    compressed: set[str] = set()
    for group in _groups(asked):
        for (range_, asker), blob in zip(group, read_ranges([each.range for each in group], limit), strict=True):
            if asker is None:
                if isinstance(blob, bytes) and is_compressed(blob):
                    compressed.add(range_.place.url)
            elif isinstance(blob, bytes) and not (asker.member and range_.place.url in compressed):
                yield range_result(asker, blob)
            else:
                reason = f"{shown(asker.path)}: the tar is compressed" if isinstance(blob, bytes) else blob
                log.warning("not read: %s: %s", asker.name, reason)
                yield unread(asker)


def _groups(asked: list[_Asked]) -> list[list[_Asked]]:
    groups: list[list[_Asked]] = []
    size = 0
    for each in asked:
        size += each.range.size
        if not groups or size > RANGES_SIZE:
            groups.append([])
            size = each.range.size
        groups[-1].append(each)
    return groups


def _whole(place: RemotePlace, piece: ItemPiece, limit: int) -> FetchedPiece:
    try:
        return FetchedPiece(piece, read_whole(place, limit))
    except TouchfsError as error:
        log.warning("not read: %s", error)
        return unread(piece)


def _members(place: RemotePlace, pieces: list[ItemPiece], limit: int) -> Iterator[FoundMember]:
    names = {piece.member: None for piece in pieces if piece.member is not None}
    if not names:
        return
    if is_compressed_tar(pieces[0].path):
        with closing(_decompressed(place, limit)) as scratch, closing(DATA.open(scratch.path)) as tar:
            yield from read_members(tar, tar.size, names, limit)
        return
    source = _open(place, limit)
    yield from read_members(source, source.size, names, limit)


def _open(place: RemotePlace, limit: int) -> RemoteSource | Memory:
    """A file as a source: in memory, if its server sends no ranges."""
    try:
        source = RemoteSource(place, limit)
        source.read(0, min(source.size, HEAD_SIZE))
    except NoRangesError:
        return Memory(read_whole(place, limit))
    return source


def _decompressed(place: RemotePlace, limit: int) -> ScratchFile:
    """Decompress a file into the scratch store. Few stores say the version of a file, so its name there is not used
    again.
    """
    codec = codec_of(shown(place.url).lower())
    source = _open(place, limit)

    def steps() -> Iterator[bytes]:
        for offset in range(0, source.size, BLOCK_SIZE):
            block = bytes(source.read(offset, min(BLOCK_SIZE, source.size - offset)))
            yield from (block[start : start + STEP_SIZE] for start in range(0, len(block), STEP_SIZE))

    return Scratch.configured().make(uuid4().hex, decompress(codec, steps(), place.url))
