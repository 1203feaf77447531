"""The bytes of a cell of a table as a source."""

from __future__ import annotations

from touchfs.core.errors import FormatError
from touchfs.core.extent import Buffer, Content, Extent


class CellSource:
    """A source: the bytes of a cell. `content` is made of them, and `identity` is a text that no other bytes have."""

    __slots__ = ("_content", "identity")

    def __init__(self, content: Content, identity: str | None) -> None:
        self._content = content
        self.identity = identity

    def read(self, offset: int, length: int) -> Buffer:
        """See `Source.read`. Raises FormatError for a range that the cell does not have."""
        data = self._content.read(offset, length)
        if len(data) != length:
            raise FormatError("a recording in a cell is shorter than its header says", offset=offset)
        return data

    def read_nowait(self, offset: int, length: int) -> Buffer | None:
        data = self._content.read_nowait(offset, length)
        return data if data is not None and len(data) == length else None


def cell_extent(content: Content, size: int, identity: str | None) -> Extent:
    """The whole cell whose bytes are `content`, of this size."""
    return Extent(CellSource(content, identity), 0, size)
