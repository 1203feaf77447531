"""One worker: the memory it shares with its supervisor, and its life from fork to exit.

Workers have no state that matters: any worker may be killed at any instant, and its requests are resent to another one
(`supervisor`). Their shared memory (`Shared`) is made before the first fork. A worker that is to be replaced *drains*:
it takes no more requests, answers those it has, and exits.
"""

from __future__ import annotations

import errno
import fcntl
import gc
import logging
import mmap
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyfuse3
import trio

from touchfs.source import counts
from touchfs_mount.loop.loop import CELLS, LATE_REPLIES, REQUESTS, SESSION_TASKS, Loop
from touchfs_mount.loop.offload import offload, offload_control
from touchfs_mount.loop.pool import PoolLimits
from touchfs_mount.loop.trio_threads import TrioThreads
from touchfs_mount.numbers.slots import MountNumbers, Slot
from touchfs_mount.requests.alone import Alone, Door
from touchfs_mount.requests.strikes import Strikes

log = logging.getLogger(__name__)

# struct fuse_dev_ioctl: FUSE_DEV_IOC_CLONE = _IOR(229, 0, uint32_t)
FUSE_DEV_IOC_CLONE = 0x8004E500

# A thread that runs Python code gives the interpreter to the loop after this long. With Python's default of 5 ms, which
# each request would have to wait, readers beside a thread that formats JSON get a tenth of the files, and with this two
# fifths (`tests/bench/beside_steps.py`).
SWITCH_SECONDS = 0.0001

# Exit statuses of a worker: the session has ended, or it has drained. Any other status is a failure.
SESSION_ENDED, DRAINED = 0, 3

_ERROR_SIZE = 2048


class Shared:
    """The memory, descriptors and locks that all processes of a mount share. Created before the first fork.

    The read lock is a memfd because it needs an inode that every worker can open separately, and no path.
    """

    def __init__(self, workers: int) -> None:
        cells = memoryview(mmap.mmap(-1, 8 * CELLS * workers)).cast("q")
        self.counters = [cells[number * CELLS : (number + 1) * CELLS] for number in range(workers)]
        self.numbers = MountNumbers(workers)
        self.strikes = Strikes(workers)
        self.door = Door()
        self.reloads = Reloads()
        # How often the kernel was asked to resend requests. Only the supervisor writes it.
        self.resent = memoryview(mmap.mmap(-1, 8)).cast("q")
        self._drains = [os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC) for _ in range(workers)]
        self._lock = os.memfd_create("touchfs-read-lock", os.MFD_CLOEXEC)
        self.lifeline, self.lifeline_write = os.pipe2(os.O_CLOEXEC)

    def open_read_lock(self) -> int:
        """A new descriptor for flock: that lock belongs to the open file, not to the process."""
        return os.open(f"/proc/self/fd/{self._lock}", os.O_RDWR | os.O_CLOEXEC)

    def drain(self, number: int) -> None:
        """Make a worker drain. It cannot miss this: the descriptor that it polls stays readable until `undrain`."""
        os.eventfd_write(self._drains[number], 1)

    def undrain(self, number: int) -> None:
        """Reset `drain`, before a new worker with this number starts."""
        with suppress(BlockingIOError):
            os.eventfd_read(self._drains[number])

    def draining(self, number: int) -> int:
        """A descriptor that becomes readable when this worker must drain."""
        return self._drains[number]

    def claim_unmount(self) -> bool:
        """True for one process only, as long as it lives: it unmounts after the supervisor has died."""
        try:
            # A POSIX lock, because it does not conflict with the flocks of the readers.
            fcntl.lockf(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        except OSError:
            return False
        return True


class Reloads:
    """The numbers of reloads, and the error of the last one. Only the supervisor writes it.

    The numbers only grow, so a program that requests a reload can tell if one that began later has ended.
    """

    def __init__(self) -> None:
        memory = memoryview(mmap.mmap(-1, 3 * 8 + _ERROR_SIZE))
        self._numbers = memory[: 3 * 8].cast("q")  # begun, ended, generations after the first
        self._error = memory[3 * 8 :]

    def begin(self) -> None:
        """A reload begins."""
        self._numbers[0] += 1

    def advance(self) -> None:
        """All workers now serve the next generation."""
        self._numbers[2] += 1

    def end(self, error: str | None) -> None:
        """A reload ends, with an error message or None. The text is written before the number, for readers of both."""
        self._error[:] = (error or "").encode("utf-8", "replace")[:_ERROR_SIZE].ljust(_ERROR_SIZE, b"\0")
        self._numbers[1] += 1

    @property
    def ended(self) -> int:
        """How many reloads have ended."""
        return self._numbers[1]

    def info(self) -> dict[str, object]:
        """The fields for `.touchfs/info`."""
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
    """The services of a worker for its operations.

    `counters` are the worker's counters, `running` has the keys of the requests that run (`strikes`). `entered`, if
    any, must be called first by every handler. `offload` runs a blocking function on data, `offload_control` one of the
    control directory (`loop`). `alone` runs a request in a process of its own. `numbers` is the worker's slot.
    `opened`, if any, is called with the thread id of each reader that opens a file.
    """

    counters: memoryview[int]
    running: memoryview[int]
    entered: Callable[[], None] | None
    offload: Callable[..., Awaitable[Any]]
    offload_control: Callable[..., Awaitable[Any]]
    alone: Alone
    numbers: Slot
    opened: Callable[[int], None] | None = None


class Operations(pyfuse3.Operations):
    """Request handlers that are created before the fork of the workers."""

    def path_of(self, *arguments: Any) -> str:
        """The path, from the root of the mount, of a request with these arguments; empty if it has none."""
        raise NotImplementedError

    def started(self, environment: Environment) -> None:
        """Called in each worker after the fork. Opens resources that must not be shared with other processes."""
        raise NotImplementedError

    def has_idle_work(self) -> bool:
        """True if `begin_idle` would do something. Called between requests, also if others wait."""
        return False

    def begin_idle(self) -> bool:
        """Called when no request waits and there may be idle work: precompute data for the next request. True if
        `end_idle` is needed.
        """
        return False

    def end_idle(self) -> None:
        """Called after that next request, or before the worker sleeps for long."""

    def ended(self) -> None:
        """Called in a worker that exits by itself."""


class _LateReplies(logging.Filter):
    """Drops and counts the log lines of pyfuse3 about requests that were resent and are answered already."""

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
    """Run a worker, in the child that the zygote forked, until the session ends or the worker has drained. Returns the
    exit status, `SESSION_ENDED` or `DRAINED`.

    With `clone` (for kernels that cannot resend requests) the worker reads from a clone of the descriptor that no other
    process has. So the kernel fails its requests at once when it dies, instead of leaving them to hang.
    """
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(ignored, signal.SIG_IGN)
    sys.setswitchinterval(SWITCH_SECONDS)
    if clone:
        clone_session(descriptor)
    counters, running = shared.counters[number], shared.strikes.running(number)
    numbers = shared.numbers.workers[number]
    counts.share(numbers.counts)
    alone = Alone(shared.strikes, shared.door, stuck_seconds)
    logging.getLogger("pyfuse3").addFilter(_LateReplies(counters))
    if trio_loop:

        def noted() -> None:
            counters[REQUESTS] += 1  # our own loop does this by itself

        threads = TrioThreads(limits, running, counters, leaves_hanging=not clone)
        environment = Environment(counters, running, noted, threads.offload, threads.offload_control, alone, numbers)
        operations.started(environment)
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
        has_idle_work=operations.has_idle_work,
        begin_idle=operations.begin_idle,
        end_idle=operations.end_idle,
    )
    entered = None if read_lock is None else loop.entered
    operations.started(Environment(counters, running, entered, offload, offload_control, alone, numbers, loop.opened))
    gc.collect()
    loop.run()
    operations.ended()
    return DRAINED if loop.drained else SESSION_ENDED


def clone_session(descriptor: int) -> None:
    """Replace the FUSE descriptor by a clone, which belongs to the same session but has its own requests."""
    cloned = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    fcntl.ioctl(cloned, FUSE_DEV_IOC_CLONE, descriptor.to_bytes(4, "little"))
    os.dup2(cloned, descriptor, inheritable=False)
    os.close(cloned)


async def _serve_under_trio(lifeline: int, drain: int, orphaned: Callable[[], None]) -> int:
    """Draining cancels everything here. The rare request that is lost by it is resent, like one of a killed worker."""
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
