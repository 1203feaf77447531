"""Processes that kill themselves before an operation: an open, a link, a rename, a removal. No chance is in it."""

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

FORK = multiprocessing.get_context("fork")
OPERATIONS = ("open", "os.", "shutil.", "fcntl.", "ctypes.")


def operations(function: Callable[..., Any], *arguments: Any) -> int:
    """How many operations a call does, in a process of its own."""
    here, there = FORK.Pipe(False)
    with here, there:
        _run(FORK.Process(target=_count, args=(there, function, arguments)), 0)
        return int(here.recv())


def kill_before(operation: int, function: Callable[..., Any], *arguments: Any) -> None:
    """Call it in a process that is killed before the operation of this number."""
    _run(FORK.Process(target=_call, args=(operation, function, arguments)), -signal.SIGKILL)


def _run(process: Any, status: int) -> None:
    process.start()
    process.join(60)
    assert process.exitcode == status


def _count(told: Any, function: Callable[..., Any], arguments: Any) -> None:
    seen = []
    _listen(lambda: seen.append(None))
    function(*arguments)
    told.send(len(seen))


def _call(left: int, function: Callable[..., Any], arguments: Any) -> None:
    kill_at(left, lambda event, _: event.startswith(OPERATIONS))
    function(*arguments)


def kill_at(left: int, counts: Callable[[str, Any], bool]) -> None:
    """Kill this process before the operation of this number, of those that count by event and values."""

    def listen(event: str, values: Any) -> None:
        nonlocal left
        if counts(event, values):
            left -= 1
            if left == -1:  # to kill is one, too
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(listen)


def _listen(tell: Callable[[], None]) -> None:
    sys.addaudithook(lambda event, _: tell() if event.startswith(OPERATIONS) else None)
