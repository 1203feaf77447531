"""Records of requests that have killed a worker, or may have.

A worker notes the requests that it *runs*, in memory shared with the supervisor: on its loop, and in each thread of its
pools. A request that only waits, in the kernel or for a thread, does not run. When a worker dies or is stuck, each
request that it ran gets a *strike*, and is resent with all other requests. A request with a strike runs alone, in a
process of its own (`alone`). If that process answers, the strike is removed: another request was to blame, or a user
killed the worker. If that process dies too, or is stuck, the request is *refused* for a while.

A request is identified by its kind, its inode or handle, and its name if it has one. So a read of another part of a
file that kills workers does not kill another worker.

There are no locks: a cell is written atomically, and a strike that is lost because another one took its cell is given
again.
"""

from __future__ import annotations

import mmap
import time
from collections.abc import Callable

from touchfs_mount.loop.pool import CONTROL_THREADS, DATA_THREADS

REFUSED_SECONDS = 60.0
# A refused request keeps its strike, so that it does not kill a worker each time that it is tried again.
STRIKE_SECONDS = 3600.0
PLACES = 1 << 12
# The places where a worker notes the requests that it runs: on the loop, and in the threads of its two pools.
ON_LOOP, IN_DATA_THREAD, IN_CONTROL_THREAD = 0, 1, 1 + DATA_THREADS
NOTES = IN_CONTROL_THREAD + CONTROL_THREADS


class Strikes:
    """The strikes of a mount, in shared memory that is created before the fork.

    A request has a strike if `struck[key % PLACES]` is its key, until the strike expires. `now` is the clock, in ns.
    """

    def __init__(self, workers: int, now: Callable[[], int] = time.monotonic_ns) -> None:
        self._now = now
        cells = memoryview(mmap.mmap(-1, 8 * (3 * PLACES + workers * NOTES))).cast("q")
        self.struck, self._until, self._refused_until, self._running = (
            cells[:PLACES],
            cells[PLACES : 2 * PLACES],
            cells[2 * PLACES : 3 * PLACES],
            cells[3 * PLACES :],
        )

    def running(self, worker: int) -> memoryview[int]:
        """The requests that a worker runs: the key of a request, or 0, at each place."""
        return self._running[worker * NOTES : (worker + 1) * NOTES]

    def ended(self, worker: int, *, badly: bool) -> int:
        """Called by the supervisor when a worker has ended. If it ended badly, requests that it ran get strikes.
        Returns how many.
        """
        running, given = self.running(worker), 0
        for place, key in enumerate(running):
            if key:
                running[place] = 0
                if badly:
                    self._strike(key)
                    given += 1
        return given

    def _strike(self, key: int) -> None:
        place = key % PLACES
        if self.struck[place] != key:
            self._refused_until[place] = 0
            self.struck[place] = key
        self._until[place] = self._in(STRIKE_SECONDS)

    def has(self, key: int) -> bool:
        """True if a request has a strike."""
        place = key % PLACES
        return self.struck[place] == key and self._now() < self._until[place]

    def is_refused(self, key: int) -> bool:
        """True if a request is refused at present."""
        return self.has(key) and self._now() < self._refused_until[key % PLACES]

    def refuse(self, key: int) -> None:
        """Give a request a strike, and refuse it for `REFUSED_SECONDS`."""
        self._strike(key)
        self._refused_until[key % PLACES] = self._in(REFUSED_SECONDS)

    def forgive(self, key: int) -> None:
        """Remove the strike of a request."""
        if self.struck[key % PLACES] == key:
            self.struck[key % PLACES] = 0

    def _in(self, seconds: float) -> int:
        return self._now() + int(seconds * 1e9)
