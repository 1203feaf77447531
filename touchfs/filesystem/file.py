"""An open file of the filesystem: a content with a position."""

from __future__ import annotations

import io
from typing import Any, SupportsIndex

from touchfs.errors import TouchfsError
from touchfs.extent import Buffer, Content
from touchfs.filesystem.os_errors import os_error_of

# What a file reads ahead in memory; the kernel or the block cache does the rest.
BUFFER_SIZE = 1 << 17


class TouchFile(io.BufferedReader):
    """A file that is open for reading. `size` is in bytes; `fs` and `path` are its filesystem and its path in that."""

    def __init__(self, fs: Any, path: str, content: Content, buffer_size: int) -> None:
        super().__init__(_RawContent(path, content), buffer_size)
        self.fs = fs
        self.path = self.full_name = path
        self.size = content.size

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        # From Python 3.12 on, that of the base refuses.
        return _reopened, (self.fs, self.path, self.tell())


def _reopened(fs: Any, path: str, position: int) -> Any:
    file = fs.open(path)
    file.seek(position)
    return file


class _RawContent(io.RawIOBase):
    def __init__(self, path: str, content: Content) -> None:
        self._path = path
        self._content = content
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if whence not in (io.SEEK_SET, io.SEEK_CUR, io.SEEK_END):
            raise ValueError(f"whence is {whence}, and not 0, 1 or 2")
        begin = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._content.size}[whence]
        if begin + offset < 0:
            raise ValueError(f"seek to {begin + offset}: before the beginning of the file")
        self._position = begin + offset
        return self._position

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        data = self._read(len(view))
        view[: len(data)] = data
        return len(data)

    def readall(self) -> bytes:
        # Python's would read pieces of 8 KiB.
        return bytes(self._read(max(self._content.size - self._position, 0)))

    def _read(self, length: int) -> Buffer:
        try:
            data = self._content.read(self._position, length)
        except TouchfsError as error:
            raise os_error_of(error, self._path) from error
        self._position += len(data)
        return data
