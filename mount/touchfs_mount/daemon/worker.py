"""The processes that serve a mount, from fork to exit: workers, the one for requests with a strike, and control.

They have no state that matters: any of them may be killed at any instant, and its requests are sent again to another
one (`supervisor`). One that is to be replaced *drains*: it takes no more requests, answers those it has, and exits.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Callable

from touchfs.posix.processes import call_oneself
from touchfs.source import counts
from touchfs_mount.control.session import ControlSession
from touchfs_mount.daemon.serving import Serving
from touchfs_mount.daemon.session import clone_session
from touchfs_mount.daemon.shared import Shared
from touchfs_mount.requests.alone import Alone
from touchfs_mount.requests.connection import KernelConnection
from touchfs_mount.requests.interrupts import Interrupts
from touchfs_mount.requests.pool import Pool, PoolLimits
from touchfs_mount.requests.replies import Replies
from touchfs_mount.requests.server import Server, Worker
from touchfs_mount.requests.strikes import IN_THREAD

# A thread that runs Python code gives the interpreter to the one that takes requests after this long. With Python's
# default of 5 ms, which each request would have to wait, readers beside a thread that formats JSON get a tenth of the
# files, and with this two fifths (`tests/bench/beside_steps.py`).
SWITCH_SECONDS = 0.0001

# Exit statuses of a process: the mount has ended, or it has drained. Any other status is a failure.
SESSION_ENDED, DRAINED = 0, 3


def run_worker(
    serving: Serving,
    descriptor: int,
    number: int,
    shared: Shared,
    timeout_seconds: float | None,
    *,
    clone: bool,
    traces: bool,
    orphaned: Callable[[], None],
) -> int:
    """Run a worker, in the child that the zygote forked. Returns the exit status, `SESSION_ENDED` or `DRAINED`.

    With `clone` (for kernels that cannot send requests again) the worker reads from a clone of the descriptor that no
    other process has. So the kernel fails its requests at once when it dies, instead of leaving them to hang.
    """
    worker = _begin(shared, number, "touchfs-worker")
    if clone:
        clone_session(descriptor)
    os.set_blocking(descriptor, False)
    connection = KernelConnection(descriptor)
    at_once, waiting = serving.answers()
    pool = Pool(worker.running[IN_THREAD:], PoolLimits(timeout_seconds=timeout_seconds))
    replies = Replies(connection, worker.counters, worker.numbers, serving.refusals)
    server = Server(
        *(connection, worker, at_once, waiting, pool, replies, shared.door, orphaned),
        leaves_hanging=not clone,
        traces=traces,
    )
    gc.collect()
    return DRAINED if server.run() else SESSION_ENDED


def run_alone(
    serving: Serving, descriptor: int, shared: Shared, timeout_seconds: float | None, orphaned: Callable[[], None]
) -> int:
    """Run the process for requests with a strike. Returns `DRAINED`."""
    worker = _begin(shared, shared.alone, "touchfs-alone")
    _, waiting = serving.answers()
    pool = Pool(worker.running[IN_THREAD:], PoolLimits(timeout_seconds=timeout_seconds))
    connection = KernelConnection(descriptor)
    replies = Replies(connection, worker.counters, worker.numbers, serving.refusals)
    interrupts = Interrupts(worker.interrupted, connection, pool)
    Alone(shared.alone_end, worker, waiting, pool, replies, interrupts, orphaned).run()
    return DRAINED


def run_control(
    serving: Serving, session: ControlSession, shared: Shared, *, clone: bool, orphaned: Callable[[], None]
) -> int:
    """Run the process of the control directory. Returns the exit status, `SESSION_ENDED` or `DRAINED`."""
    worker = _begin(shared, shared.control, "touchfs-control")
    if clone:
        clone_session(session.descriptor)
    directory = serving.control(worker)
    has_drained = session.serve(directory, worker, orphaned)
    directory.close()
    return DRAINED if has_drained else SESSION_ENDED


def _begin(shared: Shared, number: int, name: str) -> Worker:
    call_oneself(name)
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(ignored, signal.SIG_IGN)
    sys.setswitchinterval(SWITCH_SECONDS)
    worker = shared.worker(number)
    counts.share(worker.numbers.counts)
    return worker
