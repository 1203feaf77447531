"""Check the members that an index lists against the tar: their places, a sample of their headers, and the end.

An index that leaves out a member must not hide it. So each member must begin where the one before it ends, with its
padding, and nothing but zeros may follow the last one. Before the data of each there is one block, its header; or
there are three, if all members have a PAX header, as webdataset's writer gives them. Any other gap may hold something:
a link, a directory, a file that the tool skips. Then the index is not used.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from touchfs.containers.tar.layout.header import BLOCK
from touchfs.containers.tar.layout.members import Member, MemberType, ReadAhead, scan
from touchfs.core.errors import FormatError
from touchfs.core.urls import climbs
from touchfs.source.store import StoredFile

# Headers that are read, the first and the last among them.
_SAMPLES = 12
# Zeros after the last member. The writers of tars make up to 10 KiB of them.
_END_MAX = 2**16
_PLAIN, _PAX = BLOCK, 3 * BLOCK


class ListedMember(NamedTuple):
    """A member as an index lists it: its name, and the offset and the size of its data in bytes."""

    name: str
    offset: int
    size: int


def checked_members(listed: Iterable[ListedMember], file: StoredFile) -> list[Member]:
    """The members of a tar, in order, as reading their headers would find them, but for their times.

    Raises FormatError if the list does not fit the tar, and as reads of the file.
    """
    members = _placed(listed, file.size)
    _check_end(members[-1].end, file)
    _check_headers(members, file)
    return members


def _placed(listed: Iterable[ListedMember], size: int) -> list[Member]:
    ordered = sorted(listed, key=lambda member: member.offset)
    before = ordered[0].offset if ordered else 0
    if before not in (_PLAIN, _PAX):
        raise FormatError(f"it names no file at the start of the tar, but at byte {before}" if ordered else "is empty")
    members: list[Member] = []
    end = 0
    for name, offset, length in ordered:
        if offset - end != before:
            raise FormatError(f"it says nothing of what is between {name!r} and the file before it", offset=end)
        if not 0 <= length <= size - offset:
            raise FormatError(f"{name!r} would have {length} bytes, and the tar ends at byte {size}", offset=offset)
        if not name or name.endswith("/") or "\0" in name or climbs(name):
            raise FormatError(f"{name!r} is not the name of a file", offset=offset)
        members.append(Member(name, MemberType.FILE, end, offset, length, "", 0))
        end = members[-1].end
    return members


def _check_end(end: int, file: StoredFile) -> None:
    left = file.size - end
    if left > _END_MAX or (left > 0 and any(file.read(end, left))):
        raise FormatError(f"the tar goes on for {left} bytes after the last file in it", offset=end)


def _check_headers(members: Sequence[Member], file: StoredFile) -> None:
    last = len(members) - 1
    sample = [members[place] for place in sorted({last * step // (_SAMPLES - 1) for step in range(_SAMPLES)})]
    if hasattr(file, "prefetch"):  # a `UrlFile`, whose module is not loaded for local data
        for member in sample:
            file.prefetch(member.header_offset, member.offset - member.header_offset)
    for member in sample:
        found = next(scan(ReadAhead(file.read, file.size), member.header_offset), None)
        if found is None or found._replace(mtime_ns=0) != member:
            raise FormatError(f"{member.name!r} has another header in the tar", offset=member.header_offset)
