"""Work that is done after the answer: the reader does not wait for it.

One thread of a process does it, in order. A process that ends or forks finishes it first, so that no lock that it holds
is shared with a copy of the process; but it does not wait for ever for a disk that hangs. If the process is killed, the
work is not done, so it must not matter.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections import deque
from collections.abc import Callable

from touchfs.core.errors import SourceError
from touchfs.posix.threads import start_thread

# Bytes that may wait. Above that, the caller does the work itself.
WAITING_BYTES = 1 << 26
# The answer goes out first: both need the interpreter's lock.
_PAUSE_SECONDS = 0.002
_FINISH_SECONDS = 5.0


class WriteBehind:
    """A queue of work, and the thread that does it, which starts when it is first needed."""

    _thread: threading.Thread | None

    def __init__(self) -> None:
        self._reset()
        os.register_at_fork(before=self._finish, after_in_parent=self._resume, after_in_child=self._reset)
        atexit.register(self.wait)

    def do(self, size: int, work: Callable[[], None]) -> None:
        """Do `work` soon, which takes `size` bytes of memory until then; at once if too much is waiting."""
        if not self.offer(size, work):
            work()

    def offer(self, size: int, work: Callable[[], None]) -> bool:
        """Do `work` soon, as `do`. Returns False if too much is waiting: then it will not be done."""
        size = max(size, 1)
        with self._changed:
            is_later = (not self._size or self._size + size <= WAITING_BYTES) and self._has_thread()
            if is_later:
                self._size += size
                self._works.append((size, work))
                self._changed.notify_all()
        return is_later

    @property
    def is_behind(self) -> bool:
        """True if so much is waiting that nothing should be begun that is not needed now."""
        return self._size > WAITING_BYTES * 3 // 4

    @property
    def waiting(self) -> int:
        """Bytes of the work that is not done yet."""
        return self._size

    def wait(self) -> None:
        """Wait until all is done."""
        with self._changed:
            self._changed.wait_for(lambda: not self._size, _FINISH_SECONDS)

    def _has_thread(self) -> bool:
        """Start the thread if necessary. Returns False if the system or the interpreter starts none any more."""
        if self._thread is None or not self._thread.is_alive():
            try:
                self._thread = start_thread(self._run, name="behind")
            except SourceError:
                return False
        return True

    def _run(self) -> None:
        while True:
            with self._changed:
                is_idle = not self._works
                self._changed.wait_for(lambda: bool(self._works))
                size, work = self._works.popleft()
            if is_idle:
                time.sleep(_PAUSE_SECONDS)
            try:
                work()
            finally:
                with self._changed:
                    self._size -= size
                    self._changed.notify_all()
                del work

    def _finish(self) -> None:
        self._changed.acquire()
        self._changed.wait_for(lambda: not self._size, _FINISH_SECONDS)

    def _resume(self) -> None:
        self._changed.release()

    def _reset(self) -> None:
        self._changed = threading.Condition()
        self._works: deque[tuple[int, Callable[[], None]]] = deque()
        self._size = 0
        self._thread = None


WRITE_BEHIND = WriteBehind()
