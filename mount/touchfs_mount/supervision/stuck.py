"""Finds workers that are stuck: busy with one request for too long, or idle while waiting requests are not taken."""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Iterable, Sequence

from touchfs_mount.loop.loop import ALL_PARKED, BUSY_SINCE, REQUESTS


class StuckWatch:
    """Watches the counters of all workers, and polls the FUSE descriptor for requests that wait.

    `now` is the clock of `BUSY_SINCE`, in nanoseconds.
    """

    def __init__(
        self,
        counters: Sequence[memoryview[int]],
        descriptor: int,
        seconds: float,
        now: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._counters = counters
        self._limit = int(seconds * 1e9)
        self._now = now
        self._requests = select.poll()
        self._requests.register(descriptor, select.POLLIN)
        self._taken, self._untaken_since = -1, 0
        self._started = [0] * len(counters)

    def started(self, number: int) -> None:
        """Note that a worker was started: it has as long to take its first request as any other."""
        self._started[number] = self._now()

    def find(self, numbers: Iterable[int]) -> list[int]:
        """The workers among `numbers` that are stuck. Call this at short intervals: it notes what it sees."""
        now = self._now()
        busy = [counters[BUSY_SINCE] for counters in self._counters]
        taken = sum(counters[REQUESTS] for counters in self._counters)
        if taken != self._taken or ALL_PARKED in busy or not self._requests.poll(0):
            self._taken, self._untaken_since = taken, now
        since = {number: busy[number] or max(self._untaken_since, self._started[number]) for number in numbers}
        return [number for number, begin in since.items() if begin > 0 and now - begin > self._limit]
