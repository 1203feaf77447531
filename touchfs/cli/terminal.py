"""What commands share of the terminal: lines, progress bars, and processes to work in that leave Ctrl-C to this one."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import ExitStack, contextmanager

import click

from touchfs import interpreter

# Not those of the machine: a batch job may have few of them.
CPUS = len(os.sched_getaffinity(0))

Progress = Callable[[int, int], None]


def say(text: str) -> None:
    """A line on stdout, in which names are the bytes that they are on disk."""
    click.echo(os.fsencode(text))


def printable(text: str) -> str:
    """The text on one line, with what a terminal would take for a command spelled out."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


@contextmanager
def progress_bar(what: str) -> Iterator[Progress]:
    """A function that is told what is done and what there is, and then draws on stderr, if that is a terminal."""
    if not os.isatty(2):
        yield lambda done, total: None
        return
    drawn: list[Progress] = []
    with ExitStack() as stack:

        def tell(done: int, total: int) -> None:
            if not drawn:
                drawn.append(stack.enter_context(_bar(what)))
            drawn[0](done, total)

        yield tell


@contextmanager
def _bar(what: str) -> Iterator[Progress]:
    # Rich takes longer to import than most commands to run.
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    text = TextColumn("{task.description}", markup=False)
    columns = text, BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


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
