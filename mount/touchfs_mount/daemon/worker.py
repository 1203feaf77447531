"""One worker: its life from fork to exit.

Workers have no state that matters: any worker may be killed at any instant, and its requests are resent to another one
(`supervisor`). A worker that is to be replaced *drains*: it takes no more requests, answers those it has, and exits.
"""

from __future__ import annotations

import errno
import gc
import logging
import os
import signal
import sys
from collections.abc import Callable

import trio

from touchfs.source import counts
from touchfs_mount.daemon.session import clone_session
from touchfs_mount.daemon.shared import Shared
from touchfs_mount.loop import under_trio
from touchfs_mount.loop.loop import LATE_REPLIES, REQUESTS, Loop
from touchfs_mount.loop.offload import offload, offload_control
from touchfs_mount.loop.pool import PoolLimits
from touchfs_mount.loop.trio_threads import TrioThreads
from touchfs_mount.requests.alone import Alone
from touchfs_mount.requests.environment import Environment, Operations

# A thread that runs Python code gives the interpreter to the loop after this long. With Python's default of 5 ms, which
# each request would have to wait, readers beside a thread that formats JSON get a tenth of the files, and with this two
# fifths (`tests/bench/beside_steps.py`).
SWITCH_SECONDS = 0.0001

# Exit statuses of a worker: the session has ended, or it has drained. Any other status is a failure.
SESSION_ENDED, DRAINED = 0, 3


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
        operations.started(
            Environment(counters, running, noted, threads.offload, threads.offload_control, alone, numbers)
        )
        has_drained = trio.run(under_trio.serve, shared.lifeline, shared.draining(number), orphaned)
    else:
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
        )
        entered = None if read_lock is None else loop.entered
        operations.started(
            Environment(counters, running, entered, offload, offload_control, alone, numbers, loop.opened)
        )
        gc.collect()
        loop.run()
        has_drained = loop.drained
    operations.ended()
    return DRAINED if has_drained else SESSION_ENDED
