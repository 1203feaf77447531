"""Members of a tar, read by their names."""

from __future__ import annotations

import logging
import posixpath
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from touchfs.containers.tar.layout.members import Member, MemberType, members
from touchfs.core.extent import Content, Extent, Source
from touchfs.core.urls import shown
from touchfs.format import holes
from touchfs.interleaved.fetch.pieces import FetchedPiece, ItemPiece, unread

_LINKS = (MemberType.HARD_LINK, MemberType.SYMBOLIC_LINK)


class FoundMember(NamedTuple):
    """The bytes of a member: None if the tar has no file of that name, or if it has over `limit` bytes."""

    name: str
    data: bytes | None
    is_too_large: bool = False


def read_members(source: Source, size: int, names: Collection[str], limit: int) -> Iterator[FoundMember]:
    """Yield members by name. Of several, the last one counts. Links are followed once.

    Raises FormatError if the tar is damaged, and what the source raises.
    """
    found = _find(source, size, names)
    links = {name: _target(member) for name, member in found.items() if member.kind in _LINKS}
    targets = _find(source, size, set(links.values())) if links else {}
    for name in names:
        member = targets.get(links[name]) if name in links else found.get(name)
        if member is None or member.kind is not MemberType.FILE:
            yield FoundMember(name, None)
        elif member.size > limit:
            yield FoundMember(name, None, True)
        else:
            yield FoundMember(name, bytes(member_content(source, member).read(0, member.size)))


def member_content(source: Source, member: Member) -> Content:
    """Return the bytes of a file of a tar, with its holes if it is sparse."""
    stored = Extent(source, member.offset, member.stored)
    return stored if member.pieces is None else holes.present(stored, holes.pack(member.size, member.pieces))


def _find(source: Source, size: int, names: Collection[str]) -> dict[str, Member]:
    def read(offset: int, length: int) -> bytes:
        return bytes(source.read(offset, length))

    return {member.name: member for member in members(read, size) if member.name in names}


def _target(link: Member) -> str:
    if link.kind is MemberType.HARD_LINK:
        return link.link
    return posixpath.normpath(posixpath.join(posixpath.dirname(link.name), link.link))


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
