"""pyfuse3's session under trio, its usual event loop, for `mount --loop trio`."""

from __future__ import annotations

from collections.abc import Callable

import pyfuse3
import trio

from touchfs_mount.loop.loop import SESSION_TASKS


async def answer_init(is_answered: Callable[[], bool]) -> None:
    """Serve until the kernel's INIT request is answered."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(pyfuse3.main)
        while not is_answered():
            await trio.sleep(0.005)
        nursery.cancel_scope.cancel()


async def serve(lifeline: int, drain: int, orphaned: Callable[[], None]) -> bool:
    """Serve until the session ends, or until `drain` is readable. Returns true if it was.

    `orphaned` is called at the end of file on `lifeline`. Draining cancels everything here. The rare request that is
    lost by it is resent, like one of a killed worker.
    """
    has_drained = False

    async def watch_lifeline() -> None:
        await trio.lowlevel.wait_readable(lifeline)
        orphaned()

    async def watch_drain() -> None:
        nonlocal has_drained
        await trio.lowlevel.wait_readable(drain)
        has_drained = True
        nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch_lifeline)
        nursery.start_soon(watch_drain)
        await pyfuse3.main(max_tasks=SESSION_TASKS)
        nursery.cancel_scope.cancel()
    return has_drained
