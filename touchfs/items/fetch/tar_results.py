"""Results of pieces that are members of a tar."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator

from touchfs.items.fetch.tar_members import FoundMember
from touchfs.items.pieces import FetchedPiece, ItemPiece, unread
from touchfs.posix.paths import shown

log = logging.getLogger(__name__)


def member_results(
    pieces: Iterable[ItemPiece], found: Iterator[FoundMember], errors: tuple[type[Exception], ...]
) -> Iterator[FetchedPiece]:
    """Yield the results of members as they are found, and errors for those that are left if one of `errors` comes."""
    left = {piece.member: piece for piece in pieces}
    try:
        for member in found:
            piece = left.pop(member.name)
            if member.is_too_large:
                where = shown(piece.path)
                log.warning("not read: %s of %s is too large: --max-decoded raises the limit", piece.name, where)
                yield unread(piece)
            elif member.data is None:
                yield FetchedPiece(piece, None, f"missing member '{member.name}'")
            else:
                yield FetchedPiece(piece, member.data)
    except errors as error:
        log.warning("not read: %s", error)
        yield from map(unread, left.values())
