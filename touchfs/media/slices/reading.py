"""Read ranges of a content exactly."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from touchfs.core.errors import FormatError
from touchfs.core.extent import Buffer, Content

# Pieces that lie this near are read at once; others, between which there is a picture, are not.
_GAP_MAX = 1 << 16


def read_exactly(content: Content, offset: int, length: int) -> Buffer:
    """Return `length` bytes at an offset. Raises FormatError if the content ends before, and the errors of its read."""
    data = content.read(offset, length)
    if len(data) != length:
        raise FormatError(f"ends before its {content.size} bytes", offset=offset + len(data))
    return data


def read_pieces(
    content: Content, offsets: NDArray[np.int64], sizes: NDArray[np.uint32]
) -> tuple[Buffer, NDArray[np.int64]]:
    """Read pieces of a content, near ones at once. Returns the bytes, and where in them each piece begins.

    Raises as `read_exactly`.
    """
    ends = offsets + sizes
    jumps = offsets[1:] - ends[:-1]
    seams = [0, *(np.flatnonzero((jumps < 0) | (jumps > _GAP_MAX)) + 1).tolist(), len(offsets)]
    places = np.empty(len(offsets), np.int64)
    blocks: list[Buffer] = []
    size = 0
    for first, last in pairwise(seams):
        begin, end = int(offsets[first]), int(ends[last - 1])
        blocks.append(read_exactly(content, begin, end - begin))
        places[first:last] = offsets[first:last] - begin + size
        size += end - begin
    return blocks[0] if len(blocks) == 1 else b"".join(blocks), places


class Exactly:
    """A content, from the byte `begin` on, as a source, whose reads are exact."""

    def __init__(self, content: Content, begin: int = 0) -> None:
        self._content = content
        self._begin = begin

    def read(self, offset: int, length: int) -> Buffer:
        """See `Source.read`. Raises as `read_exactly`."""
        return read_exactly(self._content, self._begin + offset, max(length, 0))

    def read_nowait(self, offset: int, length: int) -> None:
        """See `Source.read_nowait`: this always has to wait."""
