"""Finds workers that are stuck: busy with one request for too long, or idle while waiting requests are not taken.

A worker that was stopped (SIGSTOP) in the middle of a request is stuck, too, and much sooner: it may hold the lock of a
state store, for which other mounts and commands wait.

Time in which the supervisor itself did not run does not count: a virtual machine may stand still for seconds.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from touchfs.posix.processes import is_suspended
from touchfs_mount.numbers.cells import BUSY_SINCE, REQUESTS

STOPPED_SECONDS = 1.0
# What is wrong with a process that somebody has stopped: what it runs is not to blame.
STOPPED = "was stopped in the middle of a request"


@dataclass(frozen=True, slots=True)
class Watched:
    """What a process shares with those who watch it: its counters, and the keys of the requests that it runs."""

    counters: memoryview[int]
    running: memoryview[int]


class StuckWatch:
    """Watches processes by their numbers, and polls their FUSE descriptor for requests that wait. Those of a process
    without one (None) tell by themselves.

    `now` is the clock of `BUSY_SINCE`, in nanoseconds.
    """

    def __init__(
        self,
        watched: Mapping[int, Watched],
        descriptor: int | None,
        seconds: float,
        now: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._watched = watched
        self._limit = int(seconds * 1e9)
        self._now = now
        self._requests = select.poll()
        if descriptor is not None:
            self._requests.register(descriptor, select.POLLIN)
        self._taken, self._untaken_since = -1, 0
        self._looked, self._ran_since = now(), 0
        self._started = dict.fromkeys(watched, 0)
        self._stopped_since: dict[int, int] = {}

    def started(self, number: int) -> None:
        """Note that a process was started: it has as long to take its first request as any other."""
        if number in self._started:
            self._started[number] = self._now()

    def find(self, pids: Mapping[int, int]) -> dict[int, str]:
        """The numbers of the stuck processes among `pids`, and what is wrong with each. Call this at short intervals:
        it notes what it sees.
        """
        now = self._now()
        if now - self._looked > self._limit * 3 // 4:
            self._ran_since = now
        self._looked = now
        pids = {number: pid for number, pid in pids.items() if number in self._watched}
        busy = {number: watched.counters[BUSY_SINCE] for number, watched in self._watched.items()}
        taken = sum(watched.counters[REQUESTS] for watched in self._watched.values())
        if taken != self._taken or not self._requests.poll(0):
            self._taken, self._untaken_since = taken, now
        since = {number: busy[number] or max(self._untaken_since, self._started[number]) for number in pids}
        problem = f"has been stuck for {self._limit / 1e9:.1f} s"
        begun = {number: max(begin, self._ran_since) for number, begin in since.items() if begin > 0}
        stuck = {number: problem for number, begin in begun.items() if now - begin > self._limit}
        return stuck | self._stopped(pids, now)

    def _stopped(self, pids: Mapping[int, int], now: int) -> dict[int, str]:
        """The processes that are stopped in the middle of a request, and were when this was last called."""
        stopped = {
            number: pid for number, pid in pids.items() if any(self._watched[number].running) and is_suspended(pid)
        }
        self._stopped_since = {pid: self._stopped_since.get(pid, now) for pid in stopped.values()}
        before = now - int(STOPPED_SECONDS * 1e9)
        return {number: STOPPED for number, pid in stopped.items() if self._stopped_since[pid] <= before}
