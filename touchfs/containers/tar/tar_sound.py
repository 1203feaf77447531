"""The length of a recording in a tar, from its first bytes, which are nearly always read together with its header."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from touchfs.containers.tar.layout.members import Member, MemberType, ReadAhead
from touchfs.core.errors import FormatError, SourceError
from touchfs.core.extent import Buffer, drive
from touchfs.media import duration
from touchfs.source.store import StoredFile

# Decided by name in lower case, so that the data of other members is never read.
SUFFIXES = (".wav", ".flac")
# Recordings of this distance are read one by one; nearer ones in blocks that hold several. And how many are fetched
# together.
_APART, _TOGETHER = 1 << 20, 64


def are_near(names: Iterable[str], size: int) -> bool:
    """True if a tar of `size` bytes with these members has so many recordings that nearly all of it is read anyway."""
    return sum(map(_is_sound, names)) * _APART > size


def measure(member: Member, ahead: ReadAhead) -> duration.AudioInfo | None:
    """Rate and length of the member that was read last.

    None if it is no recording, or damaged: the tar is still fine.
    """
    if member.kind is not MemberType.FILE or member.pieces is not None:
        return None
    head = ahead.peek(member.offset, duration.USUAL_SIZE)
    if len(head) == duration.USUAL_SIZE and (usual := duration.usual_wav(head, member.size)) is not None:
        return usual  # the usual case, which takes a third of the time of a full scan
    try:
        return drive(duration.scan(member.size), _Within(ahead, member.offset))
    except (FormatError, SourceError):
        return None


def heads_prefetched(members: Sequence[Member], file: StoredFile) -> Iterator[Member]:
    """The same members. At a URL, the heads of the next recordings are on their way."""
    if not hasattr(file, "prefetch"):  # it is not a `UrlFile`, whose module is not loaded for local data
        yield from members
        return
    coming = (member.offset for member in members if _is_sound(member.name))
    asked = deque[int]()
    for member in members:
        for offset in islice(coming, _TOGETHER - len(asked)):
            file.prefetch(offset, duration.HEAD_SIZE)
            asked.append(offset)
        if asked and member.offset == asked[0]:
            asked.popleft()
        yield member


def _is_sound(name: str) -> bool:
    return name[-5:].lower().endswith(SUFFIXES)


class _Within:
    """The bytes of a member. A read at its start returns what is buffered, if that is enough, without another read."""

    def __init__(self, ahead: ReadAhead, offset: int) -> None:
        self._ahead = ahead
        self._offset = offset

    def read(self, offset: int, length: int) -> Buffer:
        data = self._ahead.peek(self._offset + offset, length)
        if len(data) == length or (offset == 0 and len(data) >= duration.USUAL_SIZE):
            return data
        return self._ahead.read(self._offset + offset, length)

    def read_nowait(self, offset: int, length: int) -> Buffer:
        return self.read(offset, length)
