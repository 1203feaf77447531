"""The control mount's session of pyfuse3, under trio.

It is set up before its process is forked, up to the kernel's first request and no further: until then libfuse has no
splice pipe, so every process makes one of its own, and one that is killed leaves nothing in a pipe that others read.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

import pyfuse3
import trio

from touchfs.core.errors import MountError
from touchfs_mount.control.directory import ControlDirectory
from touchfs_mount.requests.server import Worker

# Each runs one request; those beyond wait in the kernel. One takes some 10 KB.
_TASKS = 1024


class _Handlers(pyfuse3.Operations):
    """The handlers of the session, which belong to the process that serves it."""

    enable_writeback_cache = False

    def __init__(self) -> None:
        super().__init__()
        self.is_initialized = False

    def init(self) -> None:
        self.is_initialized = True


@dataclass(frozen=True, slots=True)
class ControlSession:
    """A session on the FUSE descriptor of a control mount."""

    descriptor: int
    _handlers: _Handlers

    def serve(self, directory: ControlDirectory, worker: Worker, orphaned: Callable[[], None]) -> bool:
        """Serve until the mount ends, or until this process is to drain. True if it has drained.

        A request that is lost by draining is sent again, as one of a process that was killed.
        """
        vars(self._handlers).update(directory.handlers)
        return trio.run(_serve, worker, orphaned)


def begin(descriptor: int, path: str) -> ControlSession:
    """Set up a session on a mounted descriptor, and answer the kernel's first request. Raises MountError."""
    handlers = _Handlers()
    pyfuse3.init(handlers, f"/dev/fd/{descriptor}", set(pyfuse3.default_options))
    trio.run(_answer_init, handlers)
    if not handlers.is_initialized:
        raise MountError("the kernel closed the connection before it began", path=path)
    os.set_inheritable(descriptor, False)
    return ControlSession(descriptor, handlers)


async def _answer_init(handlers: _Handlers) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(pyfuse3.main)
        while not handlers.is_initialized:
            await trio.sleep(0.001)
        nursery.cancel_scope.cancel()


async def _serve(worker: Worker, orphaned: Callable[[], None]) -> bool:
    has_drained = False

    async def watch_lifeline() -> None:
        await trio.lowlevel.wait_readable(worker.lifeline)
        orphaned()

    async def watch_drain() -> None:
        nonlocal has_drained
        await trio.lowlevel.wait_readable(worker.drain)
        has_drained = True
        nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch_lifeline)
        nursery.start_soon(watch_drain)
        await pyfuse3.main(max_tasks=_TASKS)
        nursery.cancel_scope.cancel()
    return has_drained
