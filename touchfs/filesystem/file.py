"""An open file of the filesystem: a content with a position."""

from __future__ import annotations

import io
from typing import Any, SupportsIndex

from touchfs.core.errors import TouchfsError, errno_of
from touchfs.core.extent import Buffer, Content
from touchfs.core.extent.file_object import FileObject

# What a file reads ahead in memory; the kernel or the block cache does the rest.
BUFFER_SIZE = 1 << 17


class TouchFile(io.BufferedReader):
    """A file that is open for reading. `size` is in bytes; `fs` and `path` are its filesystem and its path in that."""

    def __init__(self, fs: Any, path: str, content: Content, buffer_size: int) -> None:
        super().__init__(FileObject(_WithOSErrors(path, content)), buffer_size)
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


class _WithOSErrors:
    """A content whose errors are those of the operating system."""

    def __init__(self, path: str, content: Content) -> None:
        self.size = content.size
        self._path = path
        self._content = content

    def read(self, offset: int, length: int) -> Buffer:
        try:
            return self._content.read(offset, length)
        except TouchfsError as error:
            raise os_error_of(error, self._path) from error


def os_error_of(error: TouchfsError, path: str) -> OSError:
    """The OSError with the errno that a mount would give: FileNotFoundError, TimeoutError, or one of ESTALE or EIO."""
    return OSError(errno_of(error), error.message if error.path == path else str(error), path)
