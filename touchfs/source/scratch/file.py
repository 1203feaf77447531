"""Complete files of the scratch store, which only a trusted user may have written."""

from __future__ import annotations

import os
import time
from contextlib import suppress

from touchfs.core.errors import UntrustedError
from touchfs.posix.trust import check_trusted_file, open_trusted_unique


class ScratchFile:
    """A locked file of the store. It is not evicted while this object, or its copy in a forked process, exists."""

    __slots__ = ("_descriptor", "path")

    def __init__(self, path: str, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor

    @property
    def exists(self) -> bool:
        """True if the file is still in the store."""
        return os.fstat(self._descriptor).st_nlink > 0

    def fileno(self) -> int:
        """Return the descriptor that holds the lock."""
        return self._descriptor

    def close(self) -> None:
        """Release the lock, so that the file may be evicted."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __del__(self) -> None:
        self.close()


def open_complete(path: str) -> int | None:
    """Open a complete file and set its access time, if it is ours; None if it does not exist or is not trusted."""
    if not os.path.lexists(path):  # most are missing when they are needed first, and this takes a tenth of an open
        return None
    try:
        descriptor = open_trusted_unique(path)
    except (FileNotFoundError, UntrustedError):
        return None
    with suppress(OSError):  # another user's, or on a read-only disk
        os.utime(descriptor, ns=(time.time_ns(), os.fstat(descriptor).st_mtime_ns))
    return descriptor


def is_believed(path: str) -> bool:
    """True if there is a file that a trusted user wrote, and that we may read."""
    try:
        check_trusted_file(path)
    except (OSError, UntrustedError):
        return False
    return os.access(path, os.R_OK)
