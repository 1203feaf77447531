"""Bulk work over any `concurrent.futures.Executor`: threads, processes, a Dask or MPI cluster, or none at all.

Tasks are submitted only a little ahead of finished ones, so a million of them cost no memory: `AHEAD`, or as many as
the executor's `tasks_ahead` says. Results come in the order of the tasks. The first error stops the job: pending tasks
are cancelled and running ones are waited for, so no task is still writing when the caller gets the error. A single task
runs in this process if the executor `starts_here`: it has to start processes first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    Executor,
    Future,
    InvalidStateError,
    ThreadPoolExecutor,
    wait,
)
from contextlib import suppress
from functools import partial
from itertools import chain, islice
from typing import TypeVar

from touchfs.core.errors import LostTaskError, LostWorkerError
from touchfs.core.progress import Listener, Progress, ProgressTotal, RemoteListener, listening

Task = TypeVar("Task")
T = TypeVar("T")

# Maximum number of tasks submitted and not yet yielded: several for each worker of a big machine.
AHEAD = 256
# Interval at which the progress of other processes is polled.
POLL_SECONDS = 0.2


def run(
    function: Callable[[Task], T],
    tasks: Iterable[Task],
    executor: Executor | None = None,
    done: Callable[[T], None] | None = None,
    meanwhile: Callable[[], None] | None = None,
) -> Generator[T, None, None]:
    """Yield the function's results in the order of the tasks. Without an executor, tasks run in this process.

    `done` is called with each result as soon as its task succeeds, even after another task has failed. `meanwhile` is
    called a few times a second while waiting for an executor. Raises the first error of a task, and LostWorkerError
    if a worker process dies. A LostTaskError of one task is raised when all others are done.
    """
    done = done or (lambda result: None)
    tasks = iter(tasks)
    if executor is not None:
        first = list(islice(tasks, 2))
        tasks, executor = chain(first, tasks), _needed(executor, len(first))
    if executor is None:
        for task in tasks:
            result = function(task)
            done(result)
            yield result
        return
    window: deque[Future[T]] = deque()
    running: set[Future[T]] = set()
    lost: list[LostTaskError] = []
    # An executor over a network follows its workers, and notices when they are gone.
    ahead: Callable[[], int] = getattr(executor, "tasks_ahead", lambda: AHEAD)
    check: Callable[[], None] | None = getattr(executor, "check", None)
    try:
        while True:
            for task in islice(tasks, max(ahead() - len(window), 0)):
                window.append(_submit(executor, function, task))
                running.add(window[-1])
            if not window:
                break
            finished = wait(running, POLL_SECONDS if meanwhile or check else None, FIRST_COMPLETED).done
            if check:
                check()
            if meanwhile:
                meanwhile()
            for future in [future for future in window if future in finished]:
                running.remove(future)
                try:
                    done(future.result())
                except LostTaskError as error:
                    lost.append(error)
                    window.remove(future)
            while window and window[0] not in running:
                yield window.popleft().result()
    except BrokenExecutor as error:
        raise LostWorkerError("a worker died, perhaps for lack of memory: try again with fewer workers") from error
    finally:
        # A cancelled future of a broken pool is never notified, so `wait` would wait for it for ever.
        finishing = [future for future in running if not future.cancel()]
        wait(finishing)
        for future in finishing:
            if not future.cancelled() and future.exception() is None:
                done(future.result())
    if lost:
        raise LostTaskError(f"{len(lost)} of the tasks were lost, the others are done: {lost[0].message}")


def _needed(executor: Executor, tasks: int) -> Executor | None:
    return None if tasks < 2 and getattr(executor, "starts_here", False) else executor


class _SubmittedFuture(Future[T]):
    """A future that may be cancelled while its pool breaks. In Python 3.11 the thread that manages the pool would end
    with an error, and neither the workers nor the other futures would ever end.
    """

    def set_exception(self, exception: BaseException | None) -> None:
        with suppress(InvalidStateError):
            super().set_exception(exception)


def _submit(executor: Executor, function: Callable[[Task], T], task: Task) -> Future[T]:
    future = executor.submit(function, task)
    if type(future) is Future:  # the pools of Python make no others
        future.__class__ = _SubmittedFuture
    return future


def run_sized(
    function: Callable[[Task], T],
    tasks: Collection[tuple[Task, int]],
    executor: Executor | None = None,
    done: Callable[[T], None] | None = None,
    progress: Progress = lambda done, total: None,
) -> Generator[T, None, None]:
    """Like `run`, for pairs of a task and its size in any unit. `progress` is called with the size done and the total
    size, which includes what running tasks report (`touchfs.core.progress`).
    """
    if not tasks:
        return
    with ProgressTotal(progress, sum(size for _, size in tasks)) as total:
        if (executor := executor and _needed(executor, len(tasks))) is None:
            yield from run(partial(_sized, function, total.add), tasks, None, done)
        else:
            yield from run(partial(_sized, function, total.remote()), tasks, executor, done, total.poll)
            total.poll()


def _sized(function: Callable[[Task], T], listener: Listener, task: tuple[Task, int]) -> T:
    try:
        with listening(listener, task[1]):
            return function(task[0])
    finally:
        if isinstance(listener, RemoteListener):
            listener.flush()


def one_ahead(values: Iterator[T]) -> Iterator[T]:
    """Yield values, none of which is None. A thread makes the next one meanwhile. Raises what making one raises."""
    with ThreadPoolExecutor(1) as pool:
        waiting: Future[T | None] = pool.submit(next, values, None)
        while (value := waiting.result()) is not None:
            waiting = pool.submit(next, values, None)
            yield value
