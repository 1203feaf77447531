"""Records of requests that have killed a worker, or may have.

A worker notes the requests that it *runs*, in memory shared with the supervisor: on its loop, and in each thread of its
pool. A request that only waits, in the kernel or for a thread, does not run. When a worker crashes or is stuck, each
request that it ran gets a *strike*, and is sent again with all other requests. A request with a strike runs in a
process for such requests (`alone`). If that process answers, the strike is removed: another request was to blame. If
it crashes `DEATHS` times while the request runs, the request is *refused* for a while. A request of the control
directory runs in its only process again.

A request is identified by its kind, its inode, and its name if it has one (`Request.key`). So a read of another part of
a file that kills workers does not kill another worker.

There are no locks: a cell is written atomically, and a strike that is lost because another one took its cell is given
again.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from touchfs.posix.memory.shared import shared_cells
from touchfs_mount.requests.pool import THREADS

REFUSED_SECONDS = 60.0
KILLS = "it kills each process that serves it: refused for a minute"
# A refused request keeps its strike, so that it does not kill a worker each time that it is tried again.
STRIKE_SECONDS = 3600.0
PLACES = 1 << 12
DEATHS = 3
# The places where a worker notes the requests that it runs: on the loop, and in the threads of its pool.
ON_LOOP, IN_THREAD = 0, 1
NOTES = IN_THREAD + THREADS


class Strikes:
    """The strikes of a mount, in shared memory that is created before the fork.

    A request has a strike if `struck[key % PLACES]` is its key, until the strike expires. Processes from number
    `workers` on run requests with strikes. `now` is the clock, in ns.
    """

    def __init__(self, workers: int, processes: int, now: Callable[[], int] = time.monotonic_ns) -> None:
        self._now = now
        self._workers = workers
        self.struck, self._until, self._refused_until, self._deaths, *self._running = shared_cells(
            *[PLACES] * 4, *[NOTES] * processes
        )

    def running(self, worker: int) -> memoryview[int]:
        """The requests that a worker runs: the key of a request, or 0, at each place."""
        return self._running[worker]

    def ended(self, worker: int, *, badly: bool) -> int:
        """Called by the supervisor when a process has ended. If it ended badly, requests that it ran get strikes, and
        those that had one are a death nearer to being refused. Returns how many.
        """
        running, given = self.running(worker), 0
        for place, key in enumerate(running):
            if key:
                running[place] = 0
                if badly:
                    self._strike(key)
                    self._deaths[key % PLACES] += worker >= self._workers
                    if self._deaths[key % PLACES] >= DEATHS:
                        self.refuse(key)
                    given += 1
        return given

    def _strike(self, key: int) -> None:
        place = key % PLACES
        if self.struck[place] != key:
            self._refused_until[place] = self._deaths[place] = 0
            self.struck[place] = key
        self._until[place] = self._in(STRIKE_SECONDS)

    def has(self, key: int) -> bool:
        """True if a request has a strike."""
        place = key % PLACES
        return self.struck[place] == key and self._now() < self._until[place]

    def is_refused(self, key: int) -> bool:
        return self.has(key) and self._now() < self._refused_until[key % PLACES]

    def refuse(self, key: int) -> None:
        """Give a request a strike, and refuse it for `REFUSED_SECONDS`."""
        self._strike(key)
        self._deaths[key % PLACES] = 0
        self._refused_until[key % PLACES] = self._in(REFUSED_SECONDS)

    def forgive(self, key: int) -> None:
        if self.struck[key % PLACES] == key:
            self.struck[key % PLACES] = 0

    def _in(self, seconds: float) -> int:
        return self._now() + int(seconds * 1e9)
