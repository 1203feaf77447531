"""The most recent errors that readers got, for `.touchfs/errors`, in memory that all processes of a mount share."""

from __future__ import annotations

import fcntl
import os
import struct
import threading
import time

from touchfs.control_characters import one_line

_SLOTS, _SLOT_SIZE = 128, 1024
_COUNT = struct.Struct("<Q")


class RecentErrors:
    """The last 128 errors. Created before the fork of the processes that share it."""

    def __init__(self) -> None:
        self._file = os.memfd_create("touchfs-errors", os.MFD_CLOEXEC)
        self._thread = threading.Lock()  # record locks belong to a process

    def __del__(self) -> None:
        os.close(self._file)

    def add(self, message: str) -> None:
        """Add an error as one line with the time; a line of over 1,023 bytes is truncated."""
        moment = time.strftime("%Y-%m-%dT%H:%M:%S%z")
        whole = f"{moment} {one_line(message)}".encode()
        line = whole[: _SLOT_SIZE - 1].decode("utf-8", "ignore").encode()  # without a part of a character at the end
        with self._thread:
            fcntl.lockf(self._file, fcntl.LOCK_EX, 1)
            try:
                count = self._count()
                os.pwrite(self._file, line.ljust(_SLOT_SIZE, b"\0"), self._place(count))
                os.pwrite(self._file, _COUNT.pack(count + 1), 0)
            finally:
                fcntl.lockf(self._file, fcntl.LOCK_UN, 1)

    def text(self) -> bytes:
        """The errors, one per line, newest first, each with its time."""
        count = self._count()
        slots = [os.pread(self._file, _SLOT_SIZE, self._place(i)) for i in range(max(count - _SLOTS, 0), count)]
        return b"".join(slot.rstrip(b"\0") + b"\n" for slot in reversed(slots))

    def _count(self) -> int:
        count: int = _COUNT.unpack(os.pread(self._file, _COUNT.size, 0).ljust(_COUNT.size, b"\0"))[0]
        return count

    def _place(self, number: int) -> int:
        return _COUNT.size + number % _SLOTS * _SLOT_SIZE
