"""The counterpart of our own loop's pools (`pool`) for trio: a limited number of threads for each shard."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import trio

from touchfs.errors import SourceTimeoutError
from touchfs_mount.loop.loop import PARKED
from touchfs_mount.loop.pool import PoolLimits
from touchfs_mount.requests.strikes import IN_DATA_THREAD, ON_LOOP

T = TypeVar("T")


class TrioThreads:
    """Threads for a worker that runs trio. Draining cancels everything: hanging calls are abandoned, or without
    `leaves_hanging` waited for.

    `running` gets the keys of the requests that run, on the loop and in the threads (`strikes`), and the worker's
    `counters` how many are parked.
    """

    def __init__(
        self, limits: PoolLimits, running: memoryview[int], counters: memoryview[int], *, leaves_hanging: bool
    ) -> None:
        self._limits = limits
        self._counters = counters
        self._running = running
        self._places = list(range(IN_DATA_THREAD, len(running)))
        self._control = trio.CapacityLimiter(40)
        self._abandons = leaves_hanging or limits.timeout_seconds is not None
        self._shares: WeakValueDictionary[Hashable, trio.CapacityLimiter] = WeakValueDictionary()

    async def offload(self, share: Hashable, function: Callable[..., T], *arguments: Any) -> T:
        """Run a function that may block on data in a thread. Raises SourceTimeoutError."""
        limiter = self._shares.get(share)
        if limiter is None:
            limiter = self._shares[share] = trio.CapacityLimiter(self._limits.share_threads)
        seconds = self._limits.timeout_seconds
        with trio.move_on_after(float("inf") if seconds is None else seconds):
            return await self._run(limiter, self._abandons, function, *arguments)
        raise SourceTimeoutError(f"no answer within {seconds:g} s")

    async def offload_control(self, share: Hashable, function: Callable[..., T], *arguments: Any) -> T:
        """Run a function that may block on the state store in a thread. It never times out: a step may still happen."""
        return await self._run(self._control, False, function, *arguments)

    async def _run(
        self, limiter: trio.CapacityLimiter, abandons: bool, function: Callable[..., T], *arguments: Any
    ) -> T:
        key, self._running[ON_LOOP] = self._running[ON_LOOP], 0
        self._counters[PARKED] += 1
        try:
            return await trio.to_thread.run_sync(
                self._noted, key, function, *arguments, limiter=limiter, abandon_on_cancel=abandons
            )
        finally:
            self._counters[PARKED] -= 1
            self._running[ON_LOOP] = key  # the loop continues with this request

    def _noted(self, key: int, function: Callable[..., T], *arguments: Any) -> T:
        if not self._places:  # more threads hang than there are places
            return function(*arguments)
        place = self._places.pop()
        self._running[place] = key
        try:
            return function(*arguments)
        finally:
            self._running[place] = 0
            self._places.append(place)
