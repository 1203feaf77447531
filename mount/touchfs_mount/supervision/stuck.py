"""Finds workers that are stuck: busy with one request for too long, or idle while waiting requests are not taken.

A worker that was stopped (SIGSTOP) in the middle of a request is stuck, too, and much sooner: it may hold the lock of a
state store, for which other mounts and commands wait.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Mapping, Sequence

from touchfs.posix.processes import is_suspended
from touchfs_mount.loop.loop import ALL_PARKED, BUSY_SINCE, REQUESTS

STOPPED_SECONDS = 1.0


class StuckWatch:
    """Watches the counters of all workers, and polls the FUSE descriptor for requests that wait.

    `running` has the keys of the requests that each worker runs (`strikes`). `now` is the clock of `BUSY_SINCE`, in
    nanoseconds.
    """

    def __init__(
        self,
        counters: Sequence[memoryview[int]],
        running: Sequence[memoryview[int]],
        descriptor: int,
        seconds: float,
        now: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._counters = counters
        self._running = running
        self._limit = int(seconds * 1e9)
        self._now = now
        self._requests = select.poll()
        self._requests.register(descriptor, select.POLLIN)
        self._taken, self._untaken_since = -1, 0
        self._started = [0] * len(counters)
        self._stopped_since: dict[int, int] = {}

    def started(self, number: int) -> None:
        """Note that a worker was started: it has as long to take its first request as any other."""
        self._started[number] = self._now()

    def find(self, pids: Mapping[int, int]) -> dict[int, str]:
        """The numbers of the stuck workers among `pids`, and what is wrong with each. Call this at short intervals: it
        notes what it sees.
        """
        now = self._now()
        busy = [counters[BUSY_SINCE] for counters in self._counters]
        taken = sum(counters[REQUESTS] for counters in self._counters)
        if taken != self._taken or ALL_PARKED in busy or not self._requests.poll(0):
            self._taken, self._untaken_since = taken, now
        since = {number: busy[number] or max(self._untaken_since, self._started[number]) for number in pids}
        problem = f"has been stuck for {self._limit / 1e9:.1f} s"
        stuck = {number: problem for number, begin in since.items() if begin > 0 and now - begin > self._limit}
        return self._stopped(pids, now) | stuck

    def _stopped(self, pids: Mapping[int, int], now: int) -> dict[int, str]:
        """The workers that are stopped in the middle of a request, and were when this was last called."""
        stopped = {number: pid for number, pid in pids.items() if any(self._running[number]) and is_suspended(pid)}
        self._stopped_since = {pid: self._stopped_since.get(pid, now) for pid in stopped.values()}
        before = now - int(STOPPED_SECONDS * 1e9)
        problem = "was stopped in the middle of a request"
        return {number: problem for number, pid in stopped.items() if self._stopped_since[pid] <= before}
