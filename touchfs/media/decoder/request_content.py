"""The content of a request: a child reads it through the process that asked.

libav reads 32 KB at a time, nearly always forward. Each message costs about 50 µs, so blocks are fetched, and the last
few of them are kept.
"""

from __future__ import annotations

import socket
from functools import partial

from touchfs.media.decoder.messages import receive, send
from touchfs.posix.bounded_cache import BoundedCache

_BLOCK = 1 << 18
_KEPT_BLOCKS = 16
# Of one range that a child asks for.
RANGE_MAX = 1 << 22


class ReadFailedError(OSError):
    """The other process cannot read the content. It knows why."""


class RequestContent:
    """A content of `size` bytes."""

    def __init__(self, connection: socket.socket, size: int) -> None:
        self.size = size
        self._connection = connection
        self._blocks: BoundedCache[int, memoryview] = BoundedCache(_KEPT_BLOCKS)

    def read(self, offset: int, length: int) -> bytes:
        """See `Content.read`. Raises ReadFailedError."""
        end = min(offset + length, self.size)
        pieces = []
        while offset < end:
            number, first = divmod(offset, _BLOCK)
            piece = self._blocks.get(number, partial(self._fetch, number))[first : first + end - offset]
            pieces.append(piece)
            offset += len(piece)
        return b"".join(pieces)

    def read_range(self, offset: int, length: int) -> memoryview:
        """A range of at most `RANGE_MAX` bytes, of which nothing is kept. Raises ReadFailedError."""
        send(self._connection, {"read": [offset, length]})
        answer = receive(self._connection)
        if not answer.blobs or len(answer.blobs[0]) != length:
            raise ReadFailedError("the content cannot be read")
        return answer.blobs[0]

    def _fetch(self, number: int) -> memoryview:
        return self.read_range(number * _BLOCK, min(_BLOCK, self.size - number * _BLOCK))
