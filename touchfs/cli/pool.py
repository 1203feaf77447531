"""A pool of processes of this machine, which only their parent ends.

It waits for tasks that run, so that they leave no temporary files. So the processes ignore SIGINT and SIGTERM.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import forkserver, parent_process
from multiprocessing.context import ForkServerContext, ForkServerProcess
from tempfile import gettempdir
from typing import Any, TypeVar

from touchfs.cli.terminal import log_to_stderr
from touchfs.core.errors import UsageError
from touchfs.core.extras import leave_out_pandas
from touchfs.posix import interpreter
from touchfs.posix.threads import start_thread

T = TypeVar("T")
# The name of a socket has at most 107 bytes. Python's are pymp-12345678/listener-12345678 in that directory.
_TEMPORARY_MAX = 75
# What the fork server imports once for all processes: by itself each would take 0.15 s. Only NumPy starts threads, and
# it ends them before a fork.
_PRELOADED = ["__main__", "touchfs.indexing.index_task"]


@contextmanager
def process_pool(processes: int) -> Iterator[Executor]:
    """Processes that are started with the first task. A single task of a job needs none (`touchfs.core.jobs`).

    Raises UsageError for a directory of temporary files whose name is too long.
    """
    if len(os.fsencode(gettempdir())) > _TEMPORARY_MAX:
        message = (
            f"over {_TEMPORARY_MAX} bytes, too many for the sockets of processes: choose a shorter one, as TMPDIR=/tmp"
        )
        raise UsageError(message, path=gettempdir())
    pool = _ProcessPool(processes)
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


class _ProcessPool(Executor):
    starts_here = True

    def __init__(self, processes: int) -> None:
        self._processes = processes
        self._started: ProcessPoolExecutor | None = None

    def submit(self, function: Callable[..., T], /, *arguments: Any, **options: Any) -> Future[T]:
        if self._started is None:
            self._started = self._start()
        # This may start a process. An exception in the middle would leave one that the pool does not know.
        with interpreter.deferred_signals():
            return self._started.submit(function, *arguments, **options)

    def _start(self) -> ProcessPoolExecutor:
        """By a fork server: a plain fork would copy the locks of our threads."""
        setting = interpreter.user_setting()
        # The processes inherit the blocked signals of the fork server. It takes a second until they ignore them.
        with interpreter.safe_path(), interpreter.deferred_signals():
            forkserver.set_forkserver_preload(_PRELOADED)
            forkserver.ensure_running()
        return ProcessPoolExecutor(self._processes, _Context(), _follow_parent, (setting,))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        if self._started is not None:
            self._started.shutdown(wait, cancel_futures=cancel_futures)


class _Process(ForkServerProcess):
    def terminate(self) -> None:
        """End it, as the executor does with the processes of a broken pool. They ignore SIGTERM."""
        self.kill()


class _Context(ForkServerContext):
    Process = _Process


def _follow_parent(setting: str | None) -> None:
    """Leave signals to the parent. If that is killed, this process ends too."""
    interpreter.restore(setting)
    leave_out_pandas()
    log_to_stderr()
    interpreter.ignore_signals()
    start_thread(_end_with_parent, name="parent")


def _end_with_parent() -> None:
    if (parent := parent_process()) is not None:
        parent.join()
        os._exit(1)
