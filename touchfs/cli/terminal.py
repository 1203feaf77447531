"""What commands share of the terminal: lines, and processes to work in that leave Ctrl-C to this one."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager

import click

from touchfs.control_characters import LineFormatter, one_line
from touchfs.posix import interpreter

# Not those of the machine: a batch job may have few of them.
CPUS = len(os.sched_getaffinity(0))


def say(text: str) -> None:
    """A line on stdout, in which names are the bytes that they are on disk, but for control characters."""
    click.echo(os.fsencode(one_line(text)))


def log_to_stderr(form: str = "touchfs: %(message)s") -> None:
    """Show warnings, each on a line."""
    handler = logging.StreamHandler()
    handler.setFormatter(LineFormatter(form))
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)


def printable(text: str) -> str:
    """The text on one line, with what a terminal would take for a command spelled out."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


@contextmanager
def executor(processes: int) -> Iterator[Executor | None]:
    """Processes to work in, or None for this one. Started afresh, as a fork would copy our threads' locks."""
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
    """Ctrl-C reaches all processes; the parent alone answers it. One that was killed must not leave us waiting."""
    interpreter.restore(setting)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    from multiprocessing import parent_process

    if (parent := parent_process()) is not None:
        parent.join()
        os._exit(1)
