"""Starting a thread, which may fail as a fork may: a process, a user and a machine have only so many tasks."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from touchfs.errors import SourceError


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
    """Start several such threads, or as many as the system starts. Raises SourceError if that is none."""
    for started in range(most):
        try:
            start_thread(function, *arguments, name=name)
        except SourceError:
            if not started:
                raise
            return
