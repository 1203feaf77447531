"""Bulk work over any `concurrent.futures.Executor`: threads, processes, a Dask or MPI cluster, or none at all.

Tasks are drawn only a little ahead of what is finished, so a million of them cost no memory, and results come in the
order of the tasks. The first error stops it all: what has not begun is cancelled, what runs is waited for, so nothing
is still writing somewhere when the caller learns of it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, wait
from functools import partial
from itertools import islice
from typing import TypeVar

from touchfs.errors import TouchfsError
from touchfs.progress import Listener, Progress, ProgressTotal, RemoteListener, listening

Task = TypeVar("Task")
T = TypeVar("T")

# Tasks submitted and not yet yielded: several for each worker of a big machine.
AHEAD = 256
# How often a report of what other processes do is asked for.
POLL_SECONDS = 0.2


def run(
    function: Callable[[Task], T],
    tasks: Iterable[Task],
    executor: Executor | None = None,
    done: Callable[[T], None] | None = None,
    meanwhile: Callable[[], None] | None = None,
) -> Iterator[T]:
    """The function's results in the order of the tasks. `done` hears of each task that succeeds as soon as it does,
    even of those that do so after another has failed. Without an executor, the work is done here. `meanwhile` is called
    a few times a second while there is an executor to wait for.
    """
    done = done or (lambda result: None)
    if executor is None:
        for task in tasks:
            result = function(task)
            done(result)
            yield result
        return
    tasks = iter(tasks)
    window: deque[Future[T]] = deque()
    running: set[Future[T]] = set()
    try:
        while True:
            for task in islice(tasks, AHEAD - len(window)):
                window.append(executor.submit(function, task))
                running.add(window[-1])
            if not window:
                return
            finished = wait(running, POLL_SECONDS if meanwhile else None, FIRST_COMPLETED).done
            if meanwhile:
                meanwhile()
            for future in [future for future in window if future in finished]:
                running.remove(future)
                done(future.result())
            while window and window[0] not in running:
                yield window.popleft().result()
    except BrokenExecutor as error:
        raise TouchfsError("a worker died, perhaps for lack of memory: try again with fewer workers") from error
    finally:
        for future in running:
            future.cancel()
        wait(running)
        for future in running:
            if not future.cancelled() and future.exception() is None:
                done(future.result())


def run_sized(
    function: Callable[[Task], T],
    tasks: Collection[tuple[Task, int]],
    executor: Executor | None = None,
    done: Callable[[T], None] | None = None,
    progress: Progress = lambda done, total: None,
) -> Iterator[T]:
    """As `run`, for tasks with sizes in any unit. `progress` hears how much of all sizes is done: what tasks at work
    report (`touchfs.progress`) is part of it.
    """
    if not tasks:
        return
    with ProgressTotal(progress, sum(size for _, size in tasks)) as total:
        if executor is None:
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
