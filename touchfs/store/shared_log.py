"""An append-only list of lines, shared by the processes of a mount: all see the same lines in the same order."""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Callable


class SharedLog:
    """A shared log in a file in memory. Create it before forking; it ends with the last process.

    A line must not contain a line break. It is appended completely or not at all, whichever process is killed.
    """

    def __init__(self, name: str) -> None:
        self._file = os.memfd_create(name, os.MFD_CLOEXEC)
        self._thread = threading.RLock()  # record locks are of a process
        self._lines: list[str] = []
        self._end = 0

    def __del__(self) -> None:
        os.close(self._file)

    def lines(self) -> list[str]:
        """Return all lines. Do not modify the list."""
        if os.fstat(self._file).st_size > self._end:
            with self._thread:  # another thread may have read some of them, so this looks again
                new = os.pread(self._file, os.fstat(self._file).st_size - self._end, self._end)
                whole = new[: new.rfind(b"\n") + 1]
                self._lines += [line.decode("utf-8", "surrogateescape") for line in whole.split(b"\n")[:-1]]
                self._end += len(whole)
        return self._lines

    def append(self, choose: Callable[[list[str]], str | None]) -> list[str]:
        """Append the line that `choose` returns for the existing lines, unless it is None. Returns all lines.

        No other process appends in the meantime.
        """
        with self._thread:
            fcntl.lockf(self._file, fcntl.LOCK_EX, 1)
            try:
                line = choose(self.lines())
                if line is not None:
                    # A partial line of a killed process lies after the end, and is overwritten.
                    os.pwrite(self._file, line.encode("utf-8", "surrogateescape") + b"\n", self._end)
            finally:
                fcntl.lockf(self._file, fcntl.LOCK_UN, 1)
            return self.lines()
