"""Waiting for the disk together: one fdatasync serves all transactions that were committed before it began.

SQLite would sync its write-ahead log at each commit, while it holds the lock, so writers would take turns at the disk.
Here a commit only writes to the log (`synchronous = NORMAL`), and its thread waits after releasing the lock. Of
those who wait, one syncs, and the others wait for it, or for the next sync if this one began before their commit. A
lone writer syncs once.

A power cut leaves a part of the log from its beginning, so no durable change depends on one that was lost. SQLite
itself syncs the log before it moves pages from there to the database (https://www.sqlite.org/wal.html).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import partial

from touchfs.core.errors import StateError


class LogSync:
    """Syncs the log of the database at `path`. Made once that is connected: SQLite keeps the log until all disconnect.

    Raises OSError.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._error: OSError | None = None
        self._changed = threading.Condition()
        self._begun = self._ended = 0  # syncs are numbered
        self._file = os.open(f"{path}-wal", os.O_RDONLY | os.O_CLOEXEC)

    def __del__(self) -> None:
        if hasattr(self, "_file"):  # closed here because a thread may sync after the connection was closed
            os.close(self._file)

    @property
    def has_failed(self) -> bool:
        """True after an error. The kernel may then have dropped what it could not write, and later syncs succeed."""
        return self._error is not None

    def pending(self) -> Callable[[], None]:
        """Return a function that waits until all that was committed before this call is durable. Raises StateError."""
        with self._changed:
            return partial(self._wait, self._begun + 1)

    def _wait(self, number: int) -> None:
        """Return when the sync of this number has ended, and run it if nobody else does."""
        with self._changed:
            while self._ended < number and self._begun > self._ended:
                self._changed.wait()
            is_ours = self._ended < number
            self._begun += is_ours
        if is_ours:
            self._sync()
        if self._error is not None:
            problem = f"the disk did not confirm a change: {self._error.strerror}; choose another --state-dir"
            raise StateError(problem, path=self._path) from self._error

    def _sync(self) -> None:
        try:
            os.fdatasync(self._file)
        except OSError as error:
            self._error = error
        finally:
            with self._changed:
                self._ended += 1
                self._changed.notify_all()
