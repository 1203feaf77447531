"""The map of a file with holes, as a catalog stores it (form `sparse`): the file's size and the ranges of its pieces.

`u64 size`, then for each piece `u64 offset, u64 size`, little-endian; the pieces are stored end to end.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from touchfs.core.errors import FormatError
from touchfs.core.extent import Content, Extent, Rope

# Holes take no bytes of an archive, so they may claim any size.
READ_MAX = 10**9


class Hole:
    """A content of `size` zero bytes."""

    __slots__ = ("size",)

    def __init__(self, size: int) -> None:
        self.size = size

    def read(self, offset: int, length: int) -> bytes:
        count = max(min(length, self.size - offset), 0)
        if count > READ_MAX:
            raise FormatError(f"has a hole of {self.size:,} bytes: read at most {READ_MAX:,} of them at a time")
        return bytes(count)

    read_nowait = read


def pack(size: int, pieces: Iterable[tuple[int, int]]) -> bytes:
    """Encode the map of a file of `size` bytes whose pieces are `(offset, size)`, in order."""
    return np.array([size, *(number for piece in pieces for number in piece)], "<u8").tobytes()


def size_of(detail: bytes) -> int:
    """Return the size in bytes of the file that a map describes. Raises FormatError for a damaged map."""
    return _numbers(detail)[0]


def present(extent: Extent, detail: bytes) -> Content:
    """Return the content of a file whose pieces are end to end in an extent. Raises FormatError for a damaged map."""
    size, *numbers = _numbers(detail)
    parts: list[Content] = []
    at = stored = 0
    for offset, length in zip(numbers[::2], numbers[1::2], strict=True):
        if offset < at or offset + length > size or stored + length > extent.size:
            raise _damaged()
        parts += [Hole(offset - at), Extent(extent.source, extent.offset + stored, length)]
        at, stored = offset + length, stored + length
    return Rope([*parts, Hole(size - at)])


def _numbers(detail: bytes) -> list[int]:
    """The size of the file, then offset and size of each piece."""
    if len(detail) % 16 != 8:
        raise _damaged()
    numbers: list[int] = np.frombuffer(detail, "<u8").tolist()
    return numbers


def _damaged() -> FormatError:
    return FormatError("the catalog's map of a file with holes is damaged: index with --force")
