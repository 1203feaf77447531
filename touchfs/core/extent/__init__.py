"""Content: bytes with random access, whose size is known before any of them is read.

A *source* gives random access to bytes (a file, a remote object, memory). The usual content is an `Extent`, a byte
range of a source; a `Rope` is several contents end to end. Nothing here decodes or copies ahead: a WAV view of
headerless PCM is `Rope(Memory(header), Extent(pcm))`.

Reading has one rule everywhere: `read(offset, length)` returns the bytes of `[offset, offset + length)` that lie inside
the content, so fewer only at its end, or raises. `read_nowait` does the same if it need not wait, and returns None if
it would have to: a daemon tries it on its event loop and uses a thread only after None.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Generator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Protocol, TypeVar

Buffer = bytes | bytearray | memoryview

T = TypeVar("T")
# A codec that needs random access: a generator that yields (offset, length), is sent those bytes, and returns a value.
Reads = Generator[tuple[int, int], Buffer, T]


class Source(Protocol):
    """Random access to bytes. Unlike a content's, a source's reads are exact: all of `length` bytes, or an error."""

    def read(self, offset: int, length: int) -> Buffer:
        """Return exactly the bytes `[offset, offset + length)`, or raise."""
        ...

    def read_nowait(self, offset: int, length: int) -> Buffer | None:
        """Like `read`, but return None where that would have to wait."""
        ...


class Content(Protocol):
    """The bytes of a file that is shown."""

    @property
    def size(self) -> int:
        """Size in bytes."""
        ...

    def read(self, offset: int, length: int) -> Buffer:
        """Return the bytes `[offset, offset + length)`, fewer only at the end, or raise."""
        ...

    def read_nowait(self, offset: int, length: int) -> Buffer | None:
        """Like `read`, but return None where that would have to wait."""
        ...


def drive(reads: Reads[T], source: Source) -> T:
    """Perform the reads that a codec requests, and return its result. Errors of codec and source propagate."""
    try:
        offset, length = next(reads)
        while True:
            offset, length = reads.send(source.read(offset, length))
    except StopIteration as end:
        result: T = end.value
        return result


class Extent:
    """A content: `size` bytes of a source, starting at `offset`."""

    __slots__ = ("offset", "size", "source")

    def __init__(self, source: Source, offset: int, size: int) -> None:
        self.source = source
        self.offset = offset
        self.size = size

    def read(self, offset: int, length: int) -> Buffer:
        length = min(length, self.size - offset)
        return self.source.read(self.offset + offset, length) if length > 0 else b""

    def read_nowait(self, offset: int, length: int) -> Buffer | None:
        left = self.size - offset
        if length > left:
            if left <= 0:
                return b""
            length = left
        return self.source.read_nowait(self.offset + offset, length)

    def __repr__(self) -> str:
        return f"Extent({self.source!r}, {self.offset}, {self.size})"


class Memory:
    """A content of bytes in memory: a header, or a rendered text."""

    __slots__ = ("data", "size")

    def __init__(self, data: Buffer) -> None:
        self.data = data
        self.size = len(data)

    def read(self, offset: int, length: int) -> Buffer:
        return self.data[offset : offset + length]

    read_nowait = read

    def __repr__(self) -> str:
        return f"Memory({self.size} bytes)"


class Rope:
    """Contents end to end. A read inside one of them costs a bisection; only a read that crosses a seam copies."""

    __slots__ = ("_parts", "_starts", "size")

    def __init__(self, parts: Sequence[Content]) -> None:
        self._parts = tuple(parts)
        *self._starts, self.size = accumulate((part.size for part in self._parts), initial=0)

    def read(self, offset: int, length: int) -> Buffer:
        pieces = [part.read(start, count) for part, start, count in self.pieces(offset, length)]
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def read_nowait(self, offset: int, length: int) -> Buffer | None:
        place = bisect_right(self._starts, offset) - 1
        if place >= 0:  # most reads are inside one part, and need no list of pieces
            part, start = self._parts[place], self._starts[place]
            if offset + length <= start + part.size:
                return part.read_nowait(offset - start, length)
        pieces = []
        for part, start, count in self.pieces(offset, length):
            piece = part.read_nowait(start, count)
            if piece is None:
                return None
            pieces.append(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def pieces(self, offset: int, length: int) -> list[tuple[Content, int, int]]:
        """Return the pieces of a range, as far as it lies inside: a content, the offset in it and the length."""
        end = min(offset + length, self.size)
        if offset >= end:
            return []
        pieces = []
        for i in range(bisect_right(self._starts, offset) - 1, len(self._parts)):
            part, start = self._parts[i], self._starts[i]
            if start >= end:
                break
            first = max(offset - start, 0)
            if part.size > first:
                pieces.append((part, first, min(end - start, part.size) - first))
        return pieces

    def __repr__(self) -> str:
        return f"Rope({list(self._parts)!r})"


if TYPE_CHECKING:
    _: list[type[Content]] = [Extent, Memory, Rope]
