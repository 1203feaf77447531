"""Memory that a process shares with the processes that it forks. All of it is made before the first fork.

A mapping takes no descriptor, and a file takes one. To make one may fail with an OSError: ENOMEM, or EMFILE for a file.
Pages are taken when they are first used. So writing to a file may fail with ENOMEM; a store into a mapping gets no
error, but the kernel ends a process if there is no memory at all.

A killed process leaves whatever it has stored. So there are three ways to write:

- A cell is 64 bits and is stored at once, so no reader sees a part of it. `cell += 1` is a load and a store: one thread
  of one process does it, or a lock is held.
- A text (`SharedText`) is whole or empty to its readers. One process at a time sets it.
- Whatever takes several stores is written under the lock of a file (`SharedFile`), in such an order that its last store
  makes it valid.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import threading
from itertools import accumulate, pairwise

_CELL_SIZE = 8
_TEXT_CELLS = 512


def shared_cells(*counts: int) -> list[memoryview[int]]:
    """One mapping, divided into runs of so many cells, all 0. A cell is a signed integer. Raises OSError."""
    cells = memoryview(mmap.mmap(-1, _CELL_SIZE * sum(counts))).cast("q")
    return [cells[begin:end] for begin, end in pairwise(accumulate(counts, initial=0))]


class SharedText:
    """A text of up to 4 KiB, empty at first. It is false if it is empty."""

    def __init__(self) -> None:
        self._length, cells = shared_cells(1, _TEXT_CELLS)
        self._bytes = cells.cast("B")

    def __bool__(self) -> bool:
        return self._length[0] > 0

    def set(self, text: str) -> None:
        """Set the text, cut to 4 KiB of UTF-8."""
        encoded = text.encode("utf-8", "replace")[: len(self._bytes)]
        self.clear()
        self._bytes[: len(encoded)] = encoded
        self._length[0] = len(encoded)

    def clear(self) -> None:
        self._length[0] = 0

    def text(self) -> str:
        return bytes(self._bytes[: self._length[0]]).decode("utf-8", "replace")


class SharedFile:
    """A sparse file in memory, `descriptor`, and a lock of all threads of all its processes: `with file:`.

    The lock of a process that is killed is released.
    """

    def __init__(self, name: str) -> None:
        self.descriptor = os.memfd_create(name, os.MFD_CLOEXEC)
        self._thread = threading.Lock()  # a record lock is of a process

    def __del__(self) -> None:
        os.close(self.descriptor)

    def acquire(self, *, blocking: bool = True) -> bool:
        """Take the lock. Without `blocking`, return False if another thread or process has it."""
        if not self._thread.acquire(blocking):
            return False
        try:
            fcntl.lockf(self.descriptor, fcntl.LOCK_EX | (0 if blocking else fcntl.LOCK_NB), 1)
        except BaseException as error:  # also Ctrl-C
            self._thread.release()
            if isinstance(error, BlockingIOError):
                return False
            raise
        return True

    def release(self) -> None:
        """Release the lock."""
        fcntl.lockf(self.descriptor, fcntl.LOCK_UN, 1)
        self._thread.release()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()
