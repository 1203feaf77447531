"""An executor over a Dask client: `concurrent.futures` as `touchfs.core.jobs` uses it, with our errors.

Dask gives the tasks of a lost worker to others. A task that has lost several workers, perhaps because it needs too much
memory, fails alone (`LostTaskError`).
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from concurrent import futures
from concurrent.futures import Executor, Future
from contextlib import suppress
from time import monotonic
from typing import Any, TypeVar

from touchfs.core.errors import LostTaskError, LostWorkerError

log = logging.getLogger(__name__)

T = TypeVar("T")
_SETTINGS = "TOUCHFS_"
# Tasks for each thread of the workers that are sent before the first of them is done.
_AHEAD = 4
# How long a scheduler may be away before the work is given up.
AWAY_SECONDS = 10.0
# How long there may be no workers before that is said: a nanny starts another one in less.
IDLE_SECONDS = 5.0
_LOST = "the connection to the Dask scheduler was lost: what is done is kept, so try again"


class ClusterExecutor(Executor):
    """The workers of a `distributed.Client`. Tasks run with the settings (`TOUCHFS_…`) of this process."""

    def __init__(self, client: Any, scheduler: str) -> None:
        self._client = client
        self._scheduler = scheduler  # its address for messages
        self._threads = 1
        self._idle_since: float | None = None
        self._said_idle = False
        self._lost_since: float | None = None
        self._settings = {name: value for name, value in os.environ.items() if name.startswith(_SETTINGS)}

    def check(self) -> None:
        """Raise LostWorkerError if the scheduler has been away for long. Log that it has had no workers for long, and
        that it has some again.
        """
        now = monotonic()
        if self._client.status == "running":
            self._lost_since = None
            self._check_workers(now)
            return
        self._lost_since = self._lost_since or now
        if self._client.status == "closed" or now - self._lost_since > AWAY_SECONDS:
            raise LostWorkerError(_LOST)

    def _check_workers(self, now: float) -> None:
        if self._threads:
            if self._said_idle:
                log.warning("a worker has joined %s: going on", self._scheduler)
            self._idle_since, self._said_idle = None, False
            return
        self._idle_since = self._idle_since or now
        if not self._said_idle and now - self._idle_since > IDLE_SECONDS:
            log.warning("no workers: waiting for one to join %s", self._scheduler)
            self._said_idle = True

    def tasks_ahead(self) -> int:
        """The number of tasks that may be submitted and not done. It follows the number of workers."""
        with suppress(OSError):  # `check` says how long that may last
            self._threads = sum(self._client.nthreads().values())
        return _AHEAD * max(self._threads, 1)

    def submit(self, function: Callable[..., T], /, *arguments: Any, **options: Any) -> Future[T]:
        task = self._client.submit(_Call(function, self._settings), *arguments, pure=False, **options)
        future: _ClusterFuture[T] = _ClusterFuture(task)
        self._client.loop.add_callback(_settle, future, task)
        return future

    def run_on_all(self, function: Callable[..., T], *arguments: Any) -> dict[str, T | Exception]:
        """The answer of each worker, or its error, with the settings of tasks."""
        answers: dict[str, T | Exception] = self._client.run(
            _Call(function, self._settings), *arguments, on_error="return"
        )
        return answers


class _ClusterFuture(Future[T]):
    """A future that cancels the task on the cluster."""

    def __init__(self, task: Any) -> None:
        super().__init__()
        self._task = task

    def cancel(self) -> bool:
        """Cancel it. A task that runs already goes on to its end, which nobody waits for: tasks write atomically."""
        if not super().cancel():
            return False
        self._task.cancel()
        return True


async def _settle(future: Future[T], task: Any) -> None:
    """Give a future the result of the cluster's task, or our error for it."""
    try:
        result, error = await task, None
    except BaseException as failure:  # noqa: BLE001 (a task may raise anything)
        result, error = None, failure
    if not future.set_running_or_notify_cancel():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(_our_error(error))


def _our_error(error: BaseException) -> BaseException:
    from distributed import KilledWorker
    from distributed.comm.core import CommClosedError

    if isinstance(error, KilledWorker):
        return LostTaskError("several workers died with it, perhaps for lack of memory")
    if isinstance(error, CommClosedError | futures.CancelledError | asyncio.CancelledError):
        return LostWorkerError(_LOST)
    return error


class _Call:
    """A function that runs with given settings. Dask shows only its name, which has no arguments and no secrets."""

    def __init__(self, function: Callable[..., Any], settings: dict[str, str]) -> None:
        self._function = function
        self._settings = settings
        self.__name__ = "touchfs"

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        for name in [name for name in os.environ if name.startswith(_SETTINGS)]:
            if name not in self._settings:
                del os.environ[name]
        os.environ.update(self._settings)
        return self._function(*arguments, **options)

    def __repr__(self) -> str:
        return "touchfs"
