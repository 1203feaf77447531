"""Read pieces of files of other stores: all ranges of a file system together, all else file by file."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing
from typing import Any, NamedTuple
from uuid import uuid4

from touchfs.errors import TouchfsError
from touchfs.extent import Memory
from touchfs.items.fetch.tar_members import FoundMember, read_members
from touchfs.items.fetch.tar_results import member_results
from touchfs.items.located.http_client import NoRangesError
from touchfs.items.located.locations import RemotePlace
from touchfs.items.located.remote import RemoteFiles, RemoteRange, StreamSource
from touchfs.items.pieces import (
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
from touchfs.source.data import DATA
from touchfs.source.decompressed import BLOCK_SIZE, STEP_SIZE, codec_of, decompress
from touchfs.source.scratch.store import Scratch, ScratchFile

log = logging.getLogger(__name__)

# What fsspec and its clients raise for what they cannot read. ImportError: a client is not installed.
ERRORS = (OSError, RuntimeError, ValueError, TypeError, ImportError, EOFError, TouchfsError)

# What a call of `cat_ranges` may return at most, unless a single range is larger.
RANGES_SIZE = 256 << 20


class _Asked(NamedTuple):
    """A range, and the piece that it is; None for the first bytes of a tar."""

    range: RemoteRange
    piece: ItemPiece | None


class _RemoteFile(NamedTuple):
    """A file in a file system of fsspec."""

    system: Any
    path: str
    pieces: list[ItemPiece]


def fetch_remote(places: list[tuple[RemotePlace, list[ItemPiece]]], limit: int) -> Iterator[FetchedPiece]:
    """Yield the result of each piece. The pieces of a place are all of its file."""
    remote = RemoteFiles(limit)
    files: list[_RemoteFile] = []
    for place, pieces in places:
        try:
            files.append(_RemoteFile(*remote.resolve(place), pieces))
        except ERRORS as error:
            log.warning("%s: no file system: %s", place.url, error)
            yield from failed_pieces(pieces, "failed to resolve filesystem")
    systems = {id(file.system): file.system for file in files}
    for number, system in systems.items():
        ranges = [
            (file.path, piece)
            for file in files
            if id(file.system) == number
            for piece in file.pieces
            if piece.access is PieceAccess.RANGE
        ]
        yield from _ranges(remote, system, ranges, limit)
    for file in files:
        for piece in file.pieces:
            if piece.access is PieceAccess.DIRECT:
                yield _whole(remote, file, piece)
        in_tar = [piece for piece in file.pieces if piece.access is PieceAccess.TAR]
        yield from member_results(in_tar, _members(remote, file, in_tar, limit), ERRORS)


def _ranges(
    remote: RemoteFiles, system: Any, wanted: list[tuple[str, ItemPiece]], limit: int
) -> Iterator[FetchedPiece]:
    """Yield ranges of the files of a file system, file by file. The first bytes of a tar are read with them, as a
    compressed tar has no ranges, whatever its name is.
    """
    asked: list[_Asked] = []
    tars: set[str] = set()
    for path, piece in wanted:
        if (piece.size or 0) > limit:
            log.warning("not read: %s has %d bytes, and the limit is %d", piece.name, piece.size, limit)
            yield unread(piece)
            continue
        if piece.member is not None and path not in tars:
            tars.add(path)
            asked.append(_Asked(RemoteRange(path, 0, HEAD_SIZE), None))
        asked.append(_Asked(RemoteRange(path, piece.offset, piece.size or 0), piece))
    compressed: set[str] = set()
    for group in _groups(asked):
        try:
            blobs = remote.read_ranges(system, [each.range for each in group])
        except ERRORS as error:
            log.warning("cat_ranges failed (%d ranges): %s", len(group), error)
            yield from failed_pieces([each.piece for each in group if each.piece is not None], "cat_ranges failed")
            continue
        for (range_, asker), blob in zip(group, blobs, strict=True):
            if asker is None:
                if isinstance(blob, bytes) and is_compressed(blob):
                    compressed.add(range_.path)
            elif isinstance(blob, bytes) and not (asker.member and range_.path in compressed):
                yield range_result(asker, blob)
            else:
                reason = "the tar is compressed" if isinstance(blob, bytes) else blob
                log.warning("not read: %s of %s: %s", asker.name, asker.path, reason)
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


def _whole(remote: RemoteFiles, file: _RemoteFile, piece: ItemPiece) -> FetchedPiece:
    try:
        return FetchedPiece(piece, remote.read_whole(file.system, file.path))
    except ERRORS as error:
        log.warning("not read: %s: %s", piece.path, error)
        return unread(piece)


def _members(remote: RemoteFiles, file: _RemoteFile, pieces: list[ItemPiece], limit: int) -> Iterator[FoundMember]:
    """Yield members of a tar. Raises one of `ERRORS`."""
    names = {piece.member: None for piece in pieces if piece.member is not None}
    if not names:
        return
    if is_compressed_tar(pieces[0].path):
        with closing(_decompressed(remote, file)) as scratch, closing(DATA.open(scratch.path)) as tar:
            yield from read_members(tar, tar.size, names, limit)
        return
    try:
        with file.system.open(file.path, "rb") as opened:
            source = StreamSource(opened)
            yield from read_members(source, source.size, names, limit)
    except NoRangesError:
        data = Memory(remote.read_whole(file.system, file.path))
        yield from read_members(data, data.size, names, limit)


def _decompressed(remote: RemoteFiles, file: _RemoteFile) -> ScratchFile:
    """Decompress a file into the scratch store. Few stores say the version of a file, so its name there is not used
    again.
    """
    codec = codec_of(file.path.partition("?")[0].lower())

    def steps() -> Iterator[bytes]:
        with remote.stream(file.system, file.path) as stream:
            while block := stream.read(BLOCK_SIZE):
                yield from (block[start : start + STEP_SIZE] for start in range(0, len(block), STEP_SIZE))

    return Scratch.configured().make(uuid4().hex, decompress(codec, steps()))
