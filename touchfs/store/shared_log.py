"""Lines that the processes of a mount share: any of them appends, all see the same ones in the same order."""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Callable


class SharedLog:
    """In a file in memory, made by the process that forks those which share it, and gone with the last of them.

    A line holds no line break. It is there whole or not at all, whoever is killed.
    """

    def __init__(self, name: str) -> None:
        self._file = os.memfd_create(name, os.MFD_CLOEXEC)
        self._thread = threading.RLock()  # record locks are of a process
        self._lines: list[str] = []
        self._end = 0

    def __del__(self) -> None:
        os.close(self._file)

    def lines(self) -> list[str]:
        """All of them. Not to be changed."""
        size = os.fstat(self._file).st_size
        if size > self._end:
            with self._thread:
                new = os.pread(self._file, size - self._end, self._end)
                whole = new[: new.rfind(b"\n") + 1]
                self._lines += [line.decode("utf-8", "surrogateescape") for line in whole.split(b"\n")[:-1]]
                self._end += len(whole)
        return self._lines

    def append(self, choose: Callable[[list[str]], str | None]) -> list[str]:
        """Append the line that `choose` makes of those there are, if any. Nobody else appends meanwhile."""
        with self._thread:
            fcntl.lockf(self._file, fcntl.LOCK_EX, 1)
            try:
                line = choose(self.lines())
                if line is not None:
                    # What a process left that was killed while it wrote is no line, and is written over.
                    os.pwrite(self._file, line.encode("utf-8", "surrogateescape") + b"\n", self._end)
            finally:
                fcntl.lockf(self._file, fcntl.LOCK_UN, 1)
            return self.lines()
