"""An append-only list of lines, shared by the processes of a mount: all see the same lines in the same order."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from touchfs.posix.memory.shared import SharedFile


class SharedLog:
    """A shared log in a file in memory. Create it before forking; it ends with the last process.

    A line must not contain a line break. It is appended completely or not at all, whichever process is killed.
    """

    def __init__(self, name: str) -> None:
        self._file = SharedFile(name)
        self._reading = threading.Lock()
        self._lines: list[str] = []
        self._end = 0

    def lines(self) -> list[str]:
        """Return all lines. Do not modify the list."""
        file = self._file.descriptor
        if os.fstat(file).st_size > self._end:
            with self._reading:  # another thread may have read some of them, so this looks again
                new = os.pread(file, os.fstat(file).st_size - self._end, self._end)
                whole = new[: new.rfind(b"\n") + 1]
                self._lines += [line.decode("utf-8", "surrogateescape") for line in whole.split(b"\n")[:-1]]
                self._end += len(whole)
        return self._lines

    def append(self, choose: Callable[[list[str]], str | None]) -> list[str]:
        """Append the line that `choose` returns for the existing lines, unless it is None. Returns all lines.

        No other process appends in the meantime.
        """
        with self._file:
            line = choose(self.lines())
            if line is not None:
                # A partial line of a killed process lies after the end, and is overwritten.
                os.pwrite(self._file.descriptor, line.encode("utf-8", "surrogateescape") + b"\n", self._end)
        return self.lines()
