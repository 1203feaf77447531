"""Which requests have ended a worker, or may have.

A worker notes what it *runs*, in memory that it shares with the supervisor: on its loop, and in each thread of its
pools. A request that only waits for its turn, in the kernel or for a thread, does not run. When a worker dies or is
stuck, all that it ran has a *strike*, and will be sent again with all other requests. A request with a strike runs
alone, in a process made for it (`alone`). If that answers, the strike is gone: another request was to blame, or
somebody killed the worker. If that process dies of it too, or is stuck, the request is *refused* for a while.

A request is known by its kind, its inode or handle, and its name if it has one: whoever reads another part of a file
that ends workers is not to end another one.

No locks: a cell is written at once, and a strike that is lost, as another one took its place, is given again.
"""

from __future__ import annotations

import mmap
import time

from touchfs_mount.loop.pool import CONTROL_THREADS, DATA_THREADS

REFUSED_SECONDS = 60.0
# A request that was refused keeps its strike, so that it does not cost a worker each time that it may be tried again.
STRIKE_SECONDS = 3600.0
PLACES = 1 << 12
# Where a worker notes what it runs: on the loop, and in the threads of its two pools.
ON_LOOP, IN_DATA_THREAD, IN_CONTROL_THREAD = 0, 1, 1 + DATA_THREADS
NOTES = IN_CONTROL_THREAD + CONTROL_THREADS


class Strikes:
    """Made before the fork. A request has a strike where `struck[key % PLACES]` is its key, as long as that lasts."""

    def __init__(self, workers: int) -> None:
        cells = memoryview(mmap.mmap(-1, 8 * (3 * PLACES + workers * NOTES))).cast("q")
        self.struck, self._until, self._refused_until, self._running = (
            cells[:PLACES],
            cells[PLACES : 2 * PLACES],
            cells[2 * PLACES : 3 * PLACES],
            cells[3 * PLACES :],
        )

    def running(self, worker: int) -> memoryview[int]:
        """What a worker runs: at each place the key of a request, or 0."""
        return self._running[worker * NOTES : (worker + 1) * NOTES]

    def ended(self, worker: int, *, badly: bool) -> None:
        """For the supervisor: a worker has ended, and what it ran may be to blame if it ended badly."""
        running = self.running(worker)
        for place, key in enumerate(running):
            if key:
                running[place] = 0
                if badly:
                    self._strike(key)

    def _strike(self, key: int) -> None:
        place = key % PLACES
        if self.struck[place] != key:
            self._refused_until[place] = 0
            self.struck[place] = key
        self._until[place] = _in(STRIKE_SECONDS)

    def has(self, key: int) -> bool:
        place = key % PLACES
        return self.struck[place] == key and time.monotonic_ns() < self._until[place]

    def is_refused(self, key: int) -> bool:
        return self.has(key) and time.monotonic_ns() < self._refused_until[key % PLACES]

    def refuse(self, key: int) -> None:
        self._strike(key)
        self._refused_until[key % PLACES] = _in(REFUSED_SECONDS)

    def forgive(self, key: int) -> None:
        if self.struck[key % PLACES] == key:
            self.struck[key % PLACES] = 0


def _in(seconds: float) -> int:
    return time.monotonic_ns() + int(seconds * 1e9)
