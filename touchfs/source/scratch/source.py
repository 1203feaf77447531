"""Files and values of the scratch store as sources."""

from __future__ import annotations

import math
import os
import time
from contextlib import suppress

from touchfs.core.errors import SourceError
from touchfs.core.extent import Buffer
from touchfs.source.local import LocalFile
from touchfs.source.scratch.file import ScratchFile
from touchfs.source.scratch.value import VALUE_START, open_value


class ScratchSource(LocalFile):
    """A locked file of the scratch store. It can be read even if somebody removes it from the store."""

    __slots__ = ("_file",)

    def __init__(self, file: ScratchFile) -> None:
        super().__init__(file.path)
        self._file = file

    def plain_range(self, offset: int, length: int) -> None:
        """None: see `StoredFile.plain_range`. It may be removed."""

    def _open(self) -> int:
        return os.dup(self._file.fileno())

    def _stat(self) -> os.stat_result:
        return os.fstat(self._file.fileno())


class ScratchValue(LocalFile):
    """A value of the scratch store, by its path, or by the descriptor that it was written to. It is verified whenever
    it is opened by its path, then read in parts: it never changes. It can be read even if somebody removes it. Each
    method raises SourceError if it is not there or damaged. Its reader sets `is_used`.
    """

    __slots__ = ("_written", "is_used")

    def __init__(self, path: str, written: int | None = None) -> None:
        super().__init__(path)
        self._written = written
        self.is_used = False

    def plain_range(self, offset: int, length: int) -> None:
        """None: see `StoredFile.plain_range`. It may be removed."""

    @property
    def exists(self) -> bool:
        """True if it is open, and still in the store."""
        descriptor = self._descriptor
        return descriptor is not None and os.fstat(descriptor.number).st_nlink > 0

    def touch(self) -> None:
        """Set its access time, by which the store evicts, to now; only if it is open."""
        self.is_used = False
        if (descriptor := self._descriptor) is not None:
            with suppress(OSError):
                os.utime(descriptor.number, ns=(time.time_ns(), os.fstat(descriptor.number).st_mtime_ns))

    def open(self) -> None:
        super().open()
        self._verify_at = math.inf

    def read(self, offset: int, length: int) -> bytes:
        if self._descriptor is None:  # the pool of descriptors has closed it
            self.open()
        return super().read(VALUE_START + offset, length)

    def read_nowait(self, offset: int, length: int) -> Buffer | None:
        return super().read_nowait(VALUE_START + offset, length)

    def _open(self) -> int:
        if (written := self._written) is not None:
            self._written = None
            return written
        opened = open_value(self.path)
        if opened is None:
            raise SourceError("is not in the scratch store any more, or damaged", path=self.path)
        return opened[0]
