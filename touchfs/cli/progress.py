"""Progress of long work: a bar on a terminal, lines for a log, or nothing."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from time import monotonic
from typing import Any

import click

from touchfs.core.control_characters import one_line
from touchfs.core.progress import Progress
from touchfs.posix.service_manager import ServiceManager

BYTES, SAMPLES = "bytes", "samples"
PLAIN_SECONDS = 5.0
_OPTION = "touchfs.core.progress"
_UNITS = ((10**12, "TB"), (10**9, "GB"), (10**6, "MB"), (10**3, "kB"))


def progress_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """The option `--progress` of all commands that show progress. `progress_bar` reads its value from the context."""

    def choose(context: click.Context, parameter: click.Parameter, value: str) -> None:
        context.meta[_OPTION] = value

    return click.option(
        "--progress",
        type=click.Choice(["auto", "plain", "none"]),
        default="auto",
        expose_value=False,
        callback=choose,
        help="Show a bar on a terminal (auto), a line on stderr every few seconds (plain), or nothing.",
    )(function)


@contextmanager
def progress_bar(what: str, unit: str = BYTES) -> Iterator[Progress]:
    """Yield a function that takes the amount done and the total, and shows them as `--progress` says. A service manager
    gets them, too. Once the block has ended it does nothing: work may go on that nobody waits for.
    """
    what, is_shown = one_line(what), True
    with _shown(what, unit) as shown:
        report = reported(what, shown)

        def update(done: int, total: int) -> None:
            if is_shown:
                report(done, total)

        try:
            yield update
        finally:
            is_shown = False


@contextmanager
def _shown(what: str, unit: str) -> Iterator[Progress]:
    context = click.get_current_context(silent=True)
    chosen = "auto" if context is None else context.meta.get(_OPTION, "auto")
    if chosen == "plain":
        lines = PlainLines(what, unit, lambda line: click.echo(line, err=True), monotonic)
        yield lines.update
        lines.end()
        return
    if chosen == "none" or not os.isatty(2):
        yield lambda done, total: None
        return
    drawn: list[Progress] = []
    with ExitStack() as stack:

        def update(done: int, total: int) -> None:
            if not drawn:
                drawn.append(stack.enter_context(_bar(what, unit)))
            drawn[0](done, total)

        yield update


# The start may take this much longer after each progress: some steps report nothing in between.
EXTENSION_SECONDS = 300
EVERY_SECONDS = 2.0


def reported(what: str, shown: Progress, clock: Callable[[], float] = monotonic) -> Progress:
    """A progress callback that calls `shown`, and also reports to the service manager if there is one.

    The report extends the time limit of the start, and shows in `systemctl status`. It is sent every `EVERY_SECONDS`
    while there is progress: work that hangs reports nothing, and its service fails.
    """
    manager = ServiceManager.of_environment()
    if not manager.address:
        return shown
    due, reported_at = 0.0, (-1, -1)

    def progress(done: int, total: int) -> None:
        nonlocal due, reported_at
        shown(done, total)
        if clock() >= due and (done, total) != reported_at:
            due, reported_at = clock() + EVERY_SECONDS, (done, total)
            percent = 100 * done // total if total else 0
            manager.notify(f"EXTEND_TIMEOUT_USEC={EXTENSION_SECONDS * 1_000_000}", f"STATUS={what}: {percent}%")

    return progress


class PlainLines:
    """Progress as lines: one at the start, one every `PLAIN_SECONDS`, and one at the end.

    indexing shards: 310.5 MB of 1.2 GB, 62.1 MB/s, 14 s left
    """

    def __init__(self, what: str, unit: str, write: Callable[[str], None], clock: Callable[[], float]) -> None:
        self._what = one_line(what)
        self._unit = unit
        self._write = write
        self._clock = clock
        self._started = self._next = 0.0
        self._first = self._done = self._total = 0
        self._is_written = True

    def update(self, done: int, total: int) -> None:
        """Record the progress, and write a line if one is due."""
        now = self._clock()
        if total != self._total or done < self._done:  # other work begins
            self.end()
            self._started = self._next = now
            self._first = done
        self._done, self._total, self._is_written = done, total, False
        if now >= self._next:
            self._next = now + PLAIN_SECONDS
            self._line()

    def end(self) -> None:
        """Write the last progress, unless it is written already."""
        if not self._is_written:
            self._line()

    def _line(self) -> None:
        self._is_written = True
        parts = [amounts(self._done, self._total, self._unit)]
        seconds, done = self._clock() - self._started, self._done - self._first
        if seconds > 0 and done > 0:
            parts.append(f"{amount(int(done / seconds), self._unit)}/s")
            if self._done < self._total:
                parts.append(f"{duration((self._total - self._done) * seconds / done)} left")
        self._write(f"{self._what}: {', '.join(parts)}")


def amount(count: int, unit: str) -> str:
    """A formatted amount, for example `1.2 GB` or `12,000 samples`."""
    if unit != BYTES:
        return f"{count:,} {unit}"
    for size, name in _UNITS:
        if count >= size:
            return f"{count / size:.1f} {name}"
    return f"{count} bytes"


def amounts(done: int, total: int, unit: str) -> str:
    """A formatted progress, for example `310.5 MB of 1.2 GB` or `500 of 12,000 samples`."""
    return f"{amount(done, unit) if unit == BYTES else f'{done:,}'} of {amount(total, unit)}"


def duration(seconds: float) -> str:
    """A formatted duration, for example `3 h 20 min`, `4 min 10 s` or `12 s`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


@contextmanager
def _bar(what: str, unit: str) -> Iterator[Progress]:
    # Rich takes longer to import than most commands to run.
    from rich.console import Console
    from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
    from rich.text import Text

    class Amounts(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text("" if task.total is None else amounts(int(task.completed), int(task.total), unit))

    class Rate(ProgressColumn):
        def render(self, task: Task) -> Text:
            speed = task.finished_speed or task.speed
            return Text("" if speed is None else f"{amount(int(speed), unit)}/s")

    text = TextColumn("{task.description}", markup=False)
    columns = text, BarColumn(20), Amounts(), Rate(), TimeRemainingColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)
        last = 0

        def update(done: int, total: int) -> None:
            nonlocal last
            if done < last:  # other work begins
                bar.reset(task)
            last = done
            bar.update(task, completed=done, total=total)

        yield update
