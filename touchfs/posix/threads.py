"""Threads. To start one may fail, as a fork may: a process, a user and a machine have only so many tasks."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from touchfs.core.errors import SourceError

Task = TypeVar("Task")
T = TypeVar("T")
_ARENA_MAX = -8  # M_ARENA_MAX of <malloc.h>


def start_thread(function: Callable[..., Any], *arguments: Any, name: str) -> threading.Thread:
    """Run a function in a daemon, a thread that the end of the process does not wait for.

    Raises SourceError if the system starts none. A caller that has another thread, or can do the work itself, goes on.
    """
    thread = threading.Thread(target=function, args=arguments, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError as error:
        raise SourceError(
            "no thread can be started: this user or machine runs as many tasks as it may (ulimit -u, pids.max)"
        ) from error
    return thread


def start_call(function: Callable[..., T], *arguments: Any, name: str) -> Future[T]:
    """Run a function in such a thread. The future has its outcome, unless it is cancelled before."""
    future = Future[T]()
    start_thread(_run, future, function, arguments, name=name)
    return future


def _run(future: Future[T], function: Callable[..., T], arguments: tuple[Any, ...]) -> None:
    with suppress(InvalidStateError):  # nobody waits any more for one that was cancelled
        try:
            future.set_result(function(*arguments))
        except BaseException as error:  # noqa: BLE001  every error goes to the caller
            future.set_exception(error)


class ThreadPool:
    """Makes calls in up to `most` such threads, the oldest call first. They are started as calls come.

    Not an executor of concurrent.futures: the end of the process waits for its threads. If it cannot start one, it
    raises an error although others would make the call.
    """

    def __init__(self, most: int, name: str) -> None:
        self._most = most
        self._name = name
        self._threads: list[threading.Thread] = []
        self._calls: SimpleQueue[tuple[Future[Any], Callable[..., Any], tuple[Any, ...]] | None] = SimpleQueue()

    def submit(self, function: Callable[..., T], *arguments: Any) -> Future[T]:
        """Return the outcome of a call, once it is made. Raises SourceError if the system starts no thread at all."""
        if len(self._threads) < self._most:
            try:
                self._threads.append(start_thread(self._work, name=self._name))
            except SourceError:
                if not self._threads:
                    raise
        future = Future[T]()
        self._calls.put((future, function, arguments))
        return future

    def in_order(
        self, function: Callable[[Task], T], tasks: Iterable[Task], ahead: int
    ) -> Iterator[tuple[Task, Future[T]]]:
        """Yield the tasks, each with the outcome of its call. Calls for the next `ahead` tasks are made meanwhile."""
        window: deque[tuple[Task, Future[T]]] = deque()
        for task in tasks:
            window.append((task, self.submit(function, task)))
            if len(window) > ahead:
                yield window.popleft()
        while window:
            yield window.popleft()

    def finish(self) -> None:
        """Let the threads end once all calls are made. Does not wait."""
        for _ in self._threads:
            self._calls.put(None)

    def cancel(self) -> None:
        """Cancel the calls that no thread has begun, and let the threads end after the others. Does not wait."""
        with suppress(Empty):
            while (call := self._calls.get_nowait()) is not None:
                call[0].cancel()
        self.finish()

    def close(self) -> None:
        """Cancel, and wait for the threads."""
        self.cancel()
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            _run(*call)
            del call  # its result may be large


def run_at_once(function: Callable[[Task], T], tasks: Sequence[Task], threads: int) -> list[T]:
    """The function's results, of tasks that mostly wait for other machines: so many threads of this process run them.

    Raises the error of the first task that has one. The threads are daemons: who is interrupted waits for none of them.
    """
    if threads == 1:
        return list(map(function, tasks))
    pool = ThreadPool(threads, "at-once")
    try:
        return [future.result() for future in [pool.submit(function, task) for task in tasks]]
    finally:
        pool.cancel()


def share_freed_memory() -> None:
    """Have all threads take memory from the same two heaps: else each of up to 8 heaps a processor keeps what its
    threads have freed. To be called before there are threads. Does nothing where the C library has no such setting.
    """
    import ctypes  # few commands need it

    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(_ARENA_MAX, 2)
