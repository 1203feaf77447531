"""Reading the dataset anew while it is mounted: what the supervisor does on SIGHUP.

1. A child of the zygote opens the dataset, which indexes what is new or has changed. Meanwhile all goes on; if it
   fails, that is told, and all goes on for good.
2. The zygote takes the new generation over; workers that it forks from now on serve that.
3. All workers drain at once, and each is replaced when it has. Not one by one: then workers of both generations would
   answer, and a shard just found in one be stale in the other. Requests wait in the kernel, for milliseconds. A worker
   that takes longer is killed, and what it had goes to its successor.
4. The kernel is told what it must forget (`notifications`).

Whoever has a file of an unchanged shard open notices nothing: its inode number is what it was. A shard that has changed
has other inodes, so a file of it that is open gives what the kernel still has of it, and then ESTALE.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import time
from collections.abc import Awaitable, Callable, Mapping

import sdnotify
import trio

from touchfs_mount.daemon.worker import Shared

log = logging.getLogger(__name__)

DRAIN_SECONDS = 5.0
_POLL_SECONDS = 0.002


class Reloading:
    """One reload after the other, as they are asked for; those asked for while one is under way are one more.

    `pids` are the workers by number, kept by the supervisor, which replaces each that ends. `ask` has the zygote do
    something, and returns what went wrong.
    """

    def __init__(
        self,
        shared: Shared,
        pids: Mapping[int, int],
        ask: Callable[[str], Awaitable[str | None]],
        notifier: sdnotify.SystemdNotifier,
    ) -> None:
        self._shared = shared
        self._pids = pids
        self._ask = ask
        self._notifier = notifier
        self._wanted = trio.Event()

    def want(self) -> None:
        self._wanted.set()

    async def run(self) -> None:
        while True:
            await self._wanted.wait()
            self._wanted = trio.Event()
            self._shared.reloads.begin()
            self._notifier.notify(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")
            error = await self._reload()
            if error is not None:
                log.error("%s", error)
            self._notifier.notify("READY=1")
            self._shared.reloads.end(error)

    async def _reload(self) -> str | None:
        """What went wrong."""
        error = await self._ask("reload")
        if error is not None:
            return f"not reloaded: {error}"
        await self._replace_workers()
        self._shared.reloads.advance()
        log.info("reloaded")
        error = await self._ask("invalidate")
        return None if error is None else f"reloaded, but the kernel remembers what it knew: {error}"

    async def _replace_workers(self) -> None:
        old = dict(self._pids)
        for number in old:
            self._shared.drain(number)
        with trio.move_on_after(DRAIN_SECONDS):
            await self._until(lambda: not self._left(old))
        for number in self._left(old):
            log.warning("worker %d (pid %d) has not drained in %.1f s: killing it", number, old[number], DRAIN_SECONDS)
            with contextlib.suppress(ProcessLookupError):
                os.kill(old[number], signal.SIGKILL)
        await self._until(lambda: not self._left(old) and len(self._pids) == len(self._shared.counters))

    def _left(self, old: Mapping[int, int]) -> list[int]:
        return [number for number, pid in old.items() if self._pids.get(number) == pid]

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            await trio.sleep(_POLL_SECONDS)
