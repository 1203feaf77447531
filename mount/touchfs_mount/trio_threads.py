"""The same as the pools of our own loop (`pool`), in trio's words: a share of threads for each shard."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import trio

from touchfs.errors import SourceTimeoutError
from touchfs_mount.pool import PoolLimits

T = TypeVar("T")


class TrioThreads:
    """To drain is to cancel: what hangs is left then, or without `leaves_hanging` waited for."""

    def __init__(self, limits: PoolLimits, *, leaves_hanging: bool) -> None:
        self._limits = limits
        self._abandons = leaves_hanging or limits.timeout_seconds is not None
        self._shares: WeakValueDictionary[Hashable, trio.CapacityLimiter] = WeakValueDictionary()

    async def offload(self, share: Hashable, function: Callable[..., T], *arguments: Any) -> T:
        limiter = self._shares.get(share)
        if limiter is None:
            limiter = self._shares[share] = trio.CapacityLimiter(self._limits.share_threads)
        seconds = self._limits.timeout_seconds
        with trio.move_on_after(float("inf") if seconds is None else seconds):
            return await trio.to_thread.run_sync(
                function, *arguments, limiter=limiter, abandon_on_cancel=self._abandons
            )
        raise SourceTimeoutError(f"no answer within {seconds:g} s")


async def offload_control(share: Hashable, function: Callable[..., T], *arguments: Any) -> T:
    """A step that has begun is not given up: it may still happen."""
    return await trio.to_thread.run_sync(function, *arguments)
