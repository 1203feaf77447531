"""A content as a file object, which Python's libraries read: bytes with a position."""

from __future__ import annotations

import io
from typing import Any, Protocol

from touchfs.core.extent import Buffer


class SizedReads(Protocol):
    """A content, or a source that knows its size."""

    @property
    def size(self) -> int:
        """Size in bytes."""
        ...

    def read(self, offset: int, length: int) -> Buffer:
        """Return the bytes `[offset, offset + length)`, which lie inside of `size`, or raise."""
        ...


class FileObject(io.RawIOBase):
    """A content as `io.RawIOBase`. Reading raises what reading the content raises."""

    def __init__(self, content: SizedReads) -> None:
        self._content = content
        self._position = 0

    def readable(self) -> bool:
        """See `io.IOBase`."""
        return True

    def seekable(self) -> bool:
        """See `io.IOBase`."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """See `io.IOBase`. Behind the end nothing is read; UnsupportedOperation for a position before the beginning."""
        if whence not in (io.SEEK_SET, io.SEEK_CUR, io.SEEK_END):
            raise ValueError(f"whence is {whence}, and not 0, 1 or 2")
        begin = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._content.size}[whence]
        if begin + offset < 0:
            # Of both kinds: files of the system raise OSError, which `zipfile` expects, and those in memory ValueError.
            raise io.UnsupportedOperation(f"seek to {begin + offset}: before the beginning of the file")
        self._position = begin + offset
        return self._position

    def readinto(self, buffer: Any) -> int:
        """See `io.RawIOBase`."""
        view = memoryview(buffer).cast("B")
        data = self._next(len(view))
        view[: len(data)] = data
        return len(data)

    def read(self, size: int | None = -1) -> bytes:
        """See `io.RawIOBase`. Without a size it is one read; Python's would read pieces of 8 KiB."""
        return bytes(self._next(self._content.size if size is None or size < 0 else size))

    def readall(self) -> bytes:
        """See `io.RawIOBase`."""
        return self.read()

    def _next(self, length: int) -> Buffer:
        length = min(length, self._content.size - self._position)
        if length <= 0:
            return b""
        data = self._content.read(self._position, length)
        self._position += len(data)
        return data
