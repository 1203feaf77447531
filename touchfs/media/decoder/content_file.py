"""The content of a request as a file: a child reads it through the process that asked.

libav reads 32 KB at a time, nearly always forward. Each message costs about 50 µs, so the file fetches blocks, and
keeps the last few of them.
"""

from __future__ import annotations

import io
import os
import socket
from collections import OrderedDict

from touchfs.media.decoder.messages import receive, send

_BLOCK = 1 << 18
_KEPT_BLOCKS = 16


class ReadFailedError(OSError):
    """The other process cannot read the content. It knows why."""


class ContentFile(io.RawIOBase):
    """A file of `size` bytes that can be read and sought."""

    def __init__(self, connection: socket.socket, size: int) -> None:
        self.size = size
        self._connection = connection
        self._offset = 0
        self._blocks: OrderedDict[int, memoryview] = OrderedDict()

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the offset of the next read."""
        return self._offset

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Set the offset of the next read."""
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._offset, os.SEEK_END: self.size}[whence]
        self._offset = max(start + offset, 0)
        return self._offset

    def read(self, length: int = -1) -> bytes:
        """Read up to `length` bytes at the offset. Raises ReadFailedError."""
        data = self.read_at(self._offset, self.size if length < 0 else length)
        self._offset += len(data)
        return data

    def read_at(self, offset: int, length: int) -> bytes:
        """Read the bytes `[offset, offset + length)` that lie inside the content. Raises ReadFailedError."""
        end = min(offset + length, self.size)
        pieces = []
        while offset < end:
            number, first = divmod(offset, _BLOCK)
            piece = self._block(number)[first : first + end - offset]
            pieces.append(piece)
            offset += len(piece)
        return b"".join(pieces)

    def _block(self, number: int) -> memoryview:
        block = self._blocks.get(number)
        if block is None:
            length = min(_BLOCK, self.size - number * _BLOCK)
            send(self._connection, {"read": [number * _BLOCK, length]})
            answer = receive(self._connection)
            if not answer.blobs or len(answer.blobs[0]) != length:
                raise ReadFailedError("the content cannot be read")
            block = self._blocks[number] = answer.blobs[0]
            if len(self._blocks) > _KEPT_BLOCKS:
                self._blocks.popitem(last=False)
        else:
            self._blocks.move_to_end(number)
        return block
