"""How long a recording in a tar is, told by its first bytes, which are nearly always read with its header."""

from __future__ import annotations

from touchfs.errors import FormatError, SourceError
from touchfs.extent import Buffer
from touchfs.format.tar.members import Member, MemberType, ReadAhead
from touchfs.media import duration
from touchfs.source.drive import drive

# By name, so that nothing of other members is looked at.
SUFFIXES = (".wav", ".flac", ".WAV", ".FLAC")


def measure(member: Member, ahead: ReadAhead) -> duration.AudioInfo | None:
    """Of the member that was read last; None if it does not say, or is damaged: that is not the tar's trouble."""
    if member.kind is not MemberType.FILE or member.pieces is not None:
        return None
    head = ahead.peek(member.offset, duration.USUAL_SIZE)
    if len(head) == duration.USUAL_SIZE and (usual := duration.usual_wav(head, member.size)) is not None:
        return usual  # nearly always: a third of the time
    try:
        return drive(duration.scan(member.size), _Within(ahead, member.offset))
    except (FormatError, SourceError):
        return None


class _Within:
    """The bytes of a member. The first ones are as many as there are without another read, if these will do."""

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
