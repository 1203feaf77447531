"""Read ranges of a content exactly."""

from __future__ import annotations

from touchfs.errors import FormatError
from touchfs.extent import Buffer, Content


def read_exactly(content: Content, offset: int, length: int) -> Buffer:
    """Return `length` bytes at an offset. Raises FormatError if the content ends before, and the errors of its read."""
    data = content.read(offset, length)
    if len(data) != length:
        raise FormatError(f"ends before its {content.size} bytes", offset=offset + len(data))
    return data


class Exactly:
    """A content as a source, whose reads are exact."""

    def __init__(self, content: Content) -> None:
        self._content = content

    def read(self, offset: int, length: int) -> Buffer:
        """See `Source.read`. Raises as `read_exactly`."""
        return read_exactly(self._content, offset, max(length, 0))

    def read_nowait(self, offset: int, length: int) -> None:
        """See `Source.read_nowait`: this always has to wait."""
