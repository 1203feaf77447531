"""Terminal helpers of commands: printing lines, logging, and worker processes that leave Ctrl-C to the parent."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from typing import NoReturn

import click

from touchfs.control_characters import LineFormatter, one_line
from touchfs.posix import interpreter


def available_cpus() -> int:
    """The number of CPUs that this process may use: a batch job may have fewer than the machine.

    Without `os.sched_getaffinity`, as on macOS, all CPUs of the machine.
    """
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


def say(text: str) -> None:
    """Print a line on stdout. File names keep their bytes, but control characters are escaped."""
    click.echo(os.fsencode(one_line(text)))


def exit_at_once(status: int) -> NoReturn:
    """Flush the standard streams and exit, without freeing all modules and objects first.

    That takes a fifth of the time of `touchfs mount`, as each page that it writes to is shared with the daemon. Only
    for a process without threads and functions to be called at exit. Raises OSError if the streams cannot be written.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def log_to_stderr(form: str = "touchfs: %(message)s") -> None:
    """Log warnings and errors to stderr, one per line."""
    handler = logging.StreamHandler()
    handler.setFormatter(LineFormatter(form))
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)


def printable(text: str) -> str:
    """The text on one line, with control characters escaped, which a terminal would execute."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


@contextmanager
def executor(processes: int) -> Iterator[Executor | None]:
    """An executor of worker processes, or None for a single one: then the work is done in this process.

    The processes are started by a fork server, because a plain fork would copy the locks of our threads.
    """
    if processes == 1:
        yield None
        return
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import forkserver, get_context

    setting = interpreter.user_setting()
    with interpreter.safe_path():
        forkserver.ensure_running()
    with ProcessPoolExecutor(processes, get_context("forkserver"), _follow_parent, (setting,)) as pool:
        yield pool


def _follow_parent(setting: str | None) -> None:
    """Ctrl-C reaches all processes; only the parent handles it. If the parent is killed, this process ends too."""
    interpreter.restore(setting)
    log_to_stderr()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    from multiprocessing import parent_process

    if (parent := parent_process()) is not None:
        parent.join()
        os._exit(1)
