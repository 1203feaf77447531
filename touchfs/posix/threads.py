"""Threads. To start one may fail, as a fork may: a process, a user and a machine have only so many tasks."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

from touchfs.errors import SourceError

Task = TypeVar("Task")
T = TypeVar("T")


def start_thread(function: Callable[..., Any], *arguments: Any, name: str) -> threading.Thread:
    """Run a function in a daemon, a thread that the end of the process does not wait for.

    Raises SourceError if the system starts none. Whoever has another thread, or can do the work itself, goes on.
    """
    thread = threading.Thread(target=function, args=arguments, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError as error:
        raise SourceError(
            "no thread can be started: this user or machine runs as many tasks as it may (ulimit -u, pids.max)"
        ) from error
    return thread


def start_threads(most: int, function: Callable[..., Any], *arguments: Any, name: str) -> None:
    """Start `most` such threads, or as many as the system starts. Raises SourceError if it starts none."""
    for started in range(most):
        try:
            start_thread(function, *arguments, name=name)
        except SourceError:
            if not started:
                raise
            return


def run_at_once(function: Callable[[Task], T], tasks: Sequence[Task], threads: int) -> list[T]:
    """The function's results, of tasks that mostly wait for other machines: so many threads of this process run them.

    Raises the error of the first task that has one. The threads are daemons: who is interrupted waits for none of them.
    """
    if threads == 1:
        return list(map(function, tasks))
    futures = [Future[T]() for _ in tasks]
    todo = deque(zip(futures, tasks, strict=True))

    def work() -> None:
        with suppress(IndexError):
            while True:
                future, task = todo.popleft()
                try:
                    future.set_result(function(task))
                except BaseException as error:  # noqa: BLE001  every error goes to the caller
                    future.set_exception(error)

    try:
        start_threads(min(threads, len(tasks)), work, name="at-once")
        return [future.result() for future in futures]
    finally:
        todo.clear()
