"""Bulk work over any `concurrent.futures.Executor`: threads, processes, a Dask or MPI cluster, or none at all.

Tasks are drawn only a little ahead of what is finished, so a million of them cost no memory, and results come in the
order of the tasks. The first error stops it all: what has not begun is cancelled, what runs is waited for, so nothing
is still writing somewhere when the caller learns of it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, wait
from itertools import islice
from typing import TypeVar

from touchfs.errors import TouchfsError

Task = TypeVar("Task")
T = TypeVar("T")

# Tasks submitted and not yet yielded: several for each worker of a big machine.
AHEAD = 256


def run(
    function: Callable[[Task], T],
    tasks: Iterable[Task],
    executor: Executor | None = None,
    done: Callable[[T], None] | None = None,
) -> Iterator[T]:
    """The function's results in the order of the tasks. `done` hears of each task that succeeds as soon as it does,
    even of those that do so after another has failed. Without an executor, the work is done here.
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
            finished = wait(running, return_when=FIRST_COMPLETED).done
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
