"""The most recent errors that readers got, for `.touchfs/errors`, in memory that all processes of a mount share."""

from __future__ import annotations

import os
import time

from touchfs.core.control_characters import one_line
from touchfs.posix.memory.shared import SharedFile, shared_cells

_SLOTS, _SLOT_SIZE = 128, 1024


class RecentErrors:
    """The last 128 errors. Created before the fork of the processes that share it."""

    def __init__(self) -> None:
        self._file = SharedFile("touchfs-errors")
        (self._count,) = shared_cells(1)

    def add(self, message: str) -> None:
        """Add an error as one line with the time; a line of over 1,023 bytes is truncated."""
        moment = time.strftime("%Y-%m-%dT%H:%M:%S%z")
        whole = f"{moment} {one_line(message)}".encode()
        line = whole[: _SLOT_SIZE - 1].decode("utf-8", "ignore").encode()  # without a part of a character at the end
        with self._file:
            os.pwrite(self._file.descriptor, line.ljust(_SLOT_SIZE, b"\0"), self._count[0] % _SLOTS * _SLOT_SIZE)
            self._count[0] += 1

    def text(self) -> bytes:
        """The errors, one per line, newest first, each with its time."""
        numbers = range(self._count[0])[-_SLOTS:]
        slots = (os.pread(self._file.descriptor, _SLOT_SIZE, number % _SLOTS * _SLOT_SIZE) for number in numbers[::-1])
        return b"".join(slot.rstrip(b"\0") + b"\n" for slot in slots)
