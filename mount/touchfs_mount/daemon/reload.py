"""Reloading the dataset of a running mount: the supervisor does this on SIGHUP.

1. A child of the zygote opens the dataset, which indexes new and changed shards. Meanwhile the mount serves requests.
   If this step fails, the error is reported and the mount stays as it is.
2. The zygote adopts the new generation; workers that it forks from now on serve it.
3. All workers drain at the same time, and each is replaced when it has drained. Draining them one by one would let
   workers of both generations answer, and a shard found in one would be stale in the other. Requests wait in the kernel
   for milliseconds. A worker that takes longer is killed, and its requests are resent to its successor.
4. The kernel's caches of changed entries are invalidated (`notifications`).

An open file of an unchanged shard is not affected: its inode number stays the same. A changed shard has new inodes, so
an open file of it returns the data that the kernel has cached, and then ESTALE.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Mapping

import trio

from touchfs.posix.service_manager import ServiceManager
from touchfs_mount.daemon.shared import Shared
from touchfs_mount.supervision.running import RunningWorkers

log = logging.getLogger(__name__)

DRAIN_SECONDS = 5.0
_POLL_SECONDS = 0.002


class Reloader:
    """Runs requested reloads one after the other. All requests made during a reload result in one more.

    The supervisor maintains `workers`, and replaces each worker that ends.
    `run_command` sends a command to the zygote, and returns None or an error message.
    """

    def __init__(
        self,
        shared: Shared,
        workers: RunningWorkers,
        run_command: Callable[[str], Awaitable[str | None]],
        manager: ServiceManager,
    ) -> None:
        self._shared = shared
        self._workers = workers
        self._run_command = run_command
        self._manager = manager
        self._requested = trio.Event()

    def request(self) -> None:
        self._requested.set()

    async def run(self) -> None:
        while True:
            await self._requested.wait()
            self._requested = trio.Event()
            self._shared.reloads.begin()
            self._manager.notify("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")
            error = await self._reload()
            if error is not None:
                log.error("%s", error)
            self._manager.notify("READY=1", f"STATUS={error or self._summary()}")
            self._shared.reloads.end(error)

    def _summary(self) -> str:
        return f"serves generation {self._shared.reloads.info()['generation']} of the dataset"

    async def _reload(self) -> str | None:
        """Reload once. Returns None or an error message."""
        error = await self._run_command("reload")
        if error is not None:
            return f"not reloaded: {error}"
        await self._replace_workers()
        self._shared.reloads.advance()
        log.info("reloaded")
        error = await self._run_command("invalidate")
        return None if error is None else f"reloaded, but the kernel still has old entries in its cache: {error}"

    async def _replace_workers(self) -> None:
        old = dict(self._workers.pids)
        for number in old:
            self._shared.drain(number)
        with trio.move_on_after(DRAIN_SECONDS):
            await self._until(lambda: not self._remaining(old))
        for number in self._remaining(old):
            log.warning("process %d (pid %d) has not drained in %.1f s: killing it", number, old[number], DRAIN_SECONDS)
            self._workers.kill(number, old[number])
        await self._until(lambda: not self._remaining(old) and old.keys() <= self._workers.pids.keys())

    def _remaining(self, old: Mapping[int, int]) -> list[int]:
        return [number for number, pid in old.items() if self._workers.pids.get(number) == pid]

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            await trio.sleep(_POLL_SECONDS)
