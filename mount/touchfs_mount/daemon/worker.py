"""One worker: what it shares with its supervisor, and its life from fork to exit.

Workers hold no state that matters: any may be killed at any instant, and the requests it had are sent again to
another one (`daemon`). What they share (`Shared`) is made before the first fork. A worker that is to be replaced is
told to drain: it takes no more requests, answers those it has, and ends.
"""

from __future__ import annotations

import errno
import fcntl
import gc
import logging
import mmap
import os
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyfuse3
import trio

from touchfs_mount.loop.loop import CELLS, LATE_REPLIES, REQUESTS, SESSION_TASKS, Loop, offload, offload_control
from touchfs_mount.loop.pool import PoolLimits
from touchfs_mount.loop.trio_threads import TrioThreads
from touchfs_mount.requests.alone import Alone, Door
from touchfs_mount.requests.strikes import Strikes

log = logging.getLogger(__name__)

# struct fuse_dev_ioctl: FUSE_DEV_IOC_CLONE = _IOR(229, 0, uint32_t)
FUSE_DEV_IOC_CLONE = 0x8004E500

# How a worker ends by itself: the session has ended, or it has drained. Any other exit status is a failure.
SESSION_ENDED, DRAINED = 0, 3

_ERROR_SIZE = 2048


class Shared:
    """What all processes of a mount share. Made by the daemon before it forks.

    The read lock is a memfd because it needs an inode that every worker can open anew, and no path.
    """

    def __init__(self, workers: int) -> None:
        cells = memoryview(mmap.mmap(-1, 8 * CELLS * workers)).cast("q")
        self.counters = [cells[number * CELLS : (number + 1) * CELLS] for number in range(workers)]
        self.strikes = Strikes(workers)
        self.door = Door()
        self.reloads = Reloads()
        # How often the kernel was told to send requests again. Only the supervisor writes it.
        self.resent = memoryview(mmap.mmap(-1, 8)).cast("q")
        self._drains = [os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC) for _ in range(workers)]
        self._lock = os.memfd_create("touchfs-read-lock", os.MFD_CLOEXEC)
        self.lifeline, self.lifeline_held = os.pipe2(os.O_CLOEXEC)

    def open_read_lock(self) -> int:
        """A descriptor of its own for flock, which belongs to the open file and not to the process."""
        return os.open(f"/proc/self/fd/{self._lock}", os.O_RDWR | os.O_CLOEXEC)

    def drain(self, number: int) -> None:
        """Tell a worker to drain. It cannot miss it: what it polls stays readable until `undrain`."""
        os.eventfd_write(self._drains[number], 1)

    def undrain(self, number: int) -> None:
        with suppress(BlockingIOError):
            os.eventfd_read(self._drains[number])

    def draining(self, number: int) -> int:
        """A descriptor that is readable when this worker is to drain."""
        return self._drains[number]

    def claim_unmount(self) -> bool:
        """True for one process only, as long as it lives: who unmounts after the supervisor has died."""
        try:
            # Its own byte range, by POSIX lock, so as not to meet the flocks of the readers.
            fcntl.lockf(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        except OSError:
            return False
        return True


class Reloads:
    """How often the dataset was read anew, and how that ended the last time. Only the supervisor writes it.

    Numbers that grow, so that who asks for a reload can tell whether one that began later has ended.
    """

    def __init__(self) -> None:
        memory = memoryview(mmap.mmap(-1, 3 * 8 + _ERROR_SIZE))
        self._numbers = memory[: 3 * 8].cast("q")  # begun, ended, generations after the first
        self._error = memory[3 * 8 :]

    def begin(self) -> None:
        self._numbers[0] += 1

    def advance(self) -> None:
        """All workers serve the next generation."""
        self._numbers[2] += 1

    def end(self, error: str | None) -> None:
        """The text is there before the number, for whoever sees the number."""
        self._error[:] = (error or "").encode("utf-8", "replace")[:_ERROR_SIZE].ljust(_ERROR_SIZE, b"\0")
        self._numbers[1] += 1

    def told(self) -> dict[str, object]:
        """For `.touchfs/info`."""
        begun, ended, advanced = self._numbers
        error = bytes(self._error).rstrip(b"\0").decode("utf-8", "replace")
        return {
            "generation": 1 + advanced,
            "reloads_begun": begun,
            "reloads_ended": ended,
            "reload_error": error or None,
        }


@dataclass(frozen=True, slots=True)
class Environment:
    """What a worker lends its operations: its counters, where to note what runs, what to call first, how to wait for a
    blocking function, one of a share of the data or one of the control directory (`loop`), and how to have a request
    run alone.
    """

    counters: memoryview[int]
    running: memoryview[int]
    entered: Callable[[], None] | None
    offload: Callable[..., Awaitable[Any]]
    offload_control: Callable[..., Awaitable[Any]]
    alone: Alone


class Operations(pyfuse3.Operations):
    """Handlers that know they will be forked."""

    def path_of(self, *arguments: Any) -> str:
        """What a request with these arguments is about: a path from the root of the mount, or nothing."""
        raise NotImplementedError

    def started(self, environment: Environment) -> None:
        """Called in each worker after the fork: open here what must not be shared with other processes."""
        raise NotImplementedError

    def begin_idle(self) -> None:
        """Called whenever no request waits: what the next one may need can be made now."""

    def end_idle(self) -> None:
        """Called after that next request, or before the worker sleeps."""

    def ended(self) -> None:
        """Called in a worker that ends by itself."""


class _LateReplies(logging.Filter):
    """Counts what pyfuse3 logs when a request was sent twice, and answered by the other one; drops the line."""

    def __init__(self, counters: memoryview[int]) -> None:
        super().__init__()
        self._counters = counters

    def filter(self, record: logging.LogRecord) -> bool:
        late = "fuse_reply_* failed" in record.msg and os.strerror(errno.ENOENT) in (record.args or ())
        self._counters[LATE_REPLIES] += late
        return not late


def run_worker(
    operations: Operations,
    descriptor: int,
    number: int,
    shared: Shared,
    limits: PoolLimits,
    *,
    trio_loop: bool,
    stuck_seconds: float,
    clone: bool,
    orphaned: Callable[[], None],
) -> int:
    """The life of a worker, in the child that the zygote forked, until the session ends or it has drained: which of
    the two is its exit status.

    With `clone` (kernels that cannot re-send requests) the worker reads from a clone of the descriptor that nobody
    else holds, so that the kernel fails its requests at once when it dies, instead of leaving them to hang.
    """
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    if clone:
        clone_session(descriptor)
    counters, running = shared.counters[number], shared.strikes.running(number)
    alone = Alone(shared.strikes, shared.door, stuck_seconds)
    logging.getLogger("pyfuse3").addFilter(_LateReplies(counters))
    if trio_loop:

        def noted() -> None:
            counters[REQUESTS] += 1  # which our own loop does by itself

        threads = TrioThreads(limits, running, leaves_hanging=not clone)
        operations.started(Environment(counters, running, noted, threads.offload, threads.offload_control, alone))
        status = trio.run(_serve_under_trio, shared.lifeline, shared.draining(number), orphaned)
        operations.ended()
        return status
    os.set_blocking(descriptor, False)
    read_lock = shared.open_read_lock() if len(shared.counters) > 1 else None
    loop = Loop(
        descriptor,
        counters,
        read_lock=read_lock,
        lifeline=shared.lifeline,
        drain=shared.draining(number),
        running=running,
        data_limits=limits,
        leaves_hanging=not clone,
        orphaned=orphaned,
        begin_idle=operations.begin_idle,
        end_idle=operations.end_idle,
    )
    entered = None if read_lock is None else loop.entered
    operations.started(Environment(counters, running, entered, offload, offload_control, alone))
    gc.collect()
    loop.run()
    operations.ended()
    return DRAINED if loop.drained else SESSION_ENDED


def clone_session(descriptor: int) -> None:
    """Put a clone of the FUSE descriptor, of the same session but with its own requests, in its place."""
    cloned = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    fcntl.ioctl(cloned, FUSE_DEV_IOC_CLONE, descriptor.to_bytes(4, "little"))
    os.dup2(cloned, descriptor, inheritable=False)
    os.close(cloned)


async def _serve_under_trio(lifeline: int, drain: int, orphaned: Callable[[], None]) -> int:
    """To drain here is to cancel. The rare request that is lost by it is sent again, as one of a killed worker."""
    status = SESSION_ENDED

    async def watch_lifeline() -> None:
        await trio.lowlevel.wait_readable(lifeline)
        orphaned()

    async def watch_drain() -> None:
        nonlocal status
        await trio.lowlevel.wait_readable(drain)
        status = DRAINED
        nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch_lifeline)
        nursery.start_soon(watch_drain)
        await pyfuse3.main(max_tasks=SESSION_TASKS)
        nursery.cancel_scope.cancel()
    return status
