"""Decides on which processors a worker runs: on the one of its only reader, or on all that it may use.

What a reader waits for is mostly the wake-up of a processor. If the worker runs where its reader runs, neither has to
wake another one: on a busy machine this serves 2 to 3 times as many files, at a third of the processor time. On an idle
machine the kernel moves a woken reader away to an idle processor, so there a worker stays free, and spins (`spinning`).
It never does both: a worker that spins on the processor of its reader keeps it from running.

A worker follows while nine tenths of the opens come from one thread, and none of its requests waits for a thread of a
pool. With several readers it stays free; and also with several workers, which would follow the same reader to the same
processor. A thread inherits the processors of the thread that creates it, so the worker is free again before it hands a
request to a pool, and before it sleeps.
"""

from __future__ import annotations

import logging
import os
from contextlib import suppress

log = logging.getLogger(__name__)

ALONE = 0.9
# "processor" is field 39 of /proc/PID/stat (proc_pid_stat(5)), the 37th after the name.
_PROCESSOR = 36


class Placement:
    """The processors of the thread that creates it. It is free at first."""

    def __init__(self, *, follows: bool = True) -> None:
        self._follows = follows
        self._everywhere = os.sched_getaffinity(0)
        self._place: int | None = None
        self._opens: dict[int, int] = {}
        # How many threads opened files before the last look.
        self.readers = 0
        # True if the worker runs on all processors that it may use.
        self.is_free = True

    def opened(self, reader: int) -> None:
        """A reader opens a file: its thread id, 0 if it is in another pid namespace."""
        self._opens[reader] = self._opens.get(reader, 0) + 1

    def look(self, *, may_follow: bool) -> None:
        """Decide from the opens since the last look. Reads the processor of a lone reader again, as it may move."""
        opens, self._opens = self._opens, {}
        self.readers = len(opens)
        if not (self._follows and may_follow and opens):
            self.free()
            return
        reader = max(opens, key=opens.__getitem__)
        place = _processor(reader) if reader and opens[reader] > ALONE * sum(opens.values()) else None
        if self.is_free:
            self._everywhere = os.sched_getaffinity(0)  # a cpuset or a person may have changed it
        if place is None or place not in self._everywhere or len(self._everywhere) == 1:
            self.free()
        elif place != self._place and self._set({place}):
            self._place, self.is_free = place, False

    def free(self) -> None:
        """Run on all processors again."""
        if not self.is_free:
            self._place, self.is_free = None, True
            self._set(self._everywhere)

    def _set(self, processors: set[int]) -> bool:
        try:
            os.sched_setaffinity(0, processors)
        except OSError as error:  # a changed cpuset, or a filter of system calls
            log.debug("the worker no longer follows its readers: it cannot choose processors %s: %s", processors, error)
            self._follows = False
            self._place, self.is_free = None, True
            return False
        return True


def _processor(thread: int) -> int | None:
    """The processor on which a thread ran last, None if it is gone or cannot be seen."""
    with suppress(OSError), open(f"/proc/{thread}/stat", "rb") as file:
        return int(file.read().rpartition(b")")[2].split()[_PROCESSOR])
    return None
