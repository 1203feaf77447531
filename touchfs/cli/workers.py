"""The workers of a command: `--jobs N` processes of this machine, or those of a Dask scheduler."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from functools import wraps
from typing import Any, NamedTuple

import click

from touchfs.core.errors import TouchfsError
from touchfs.core.location import Location
from touchfs.registry.find import find_shards


class Workers(NamedTuple):
    """So many processes here; or the workers of a Dask scheduler, which is `local` if it is to be started here."""

    processes: int
    scheduler: str | None = None

    def at_most(self, tasks: int) -> Workers:
        """No more processes than there are tasks."""
        return self._replace(processes=max(min(self.processes, tasks), 1))


# This process alone.
HERE = Workers(1)


def available_cpus() -> int:
    """The number of CPUs that this process may use: a batch job may have fewer than the machine.

    Without `os.sched_getaffinity`, as on macOS, all CPUs of the machine.
    """
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


def workers_option(*other_names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The options `--jobs` and `--dask` of commands that work in several processes. The command gets `workers`."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @click.option(
            "--jobs",
            *other_names,
            "processes",
            type=click.IntRange(1),
            default=available_cpus,
            show_default="one for each CPU",
            help="Number of processes.",
        )
        @click.option(
            "--dask",
            "scheduler",
            metavar="SCHEDULER|local",
            help=(
                "Work on the workers of a Dask scheduler (tcp://HOST:PORT, tls://…), or of one that is started on this "
                "machine. A scheduler is trusted: it can run any code here and there."
            ),
        )
        @wraps(function)
        def command(processes: int, scheduler: str | None, **others: Any) -> Any:
            try:
                with _terminable():
                    return function(**others, workers=Workers(processes, scheduler))
            except Terminated:
                return 128 + signal.SIGTERM

        return command

    return decorate


class Terminated(KeyboardInterrupt):
    """SIGTERM ends a command as Ctrl-C does, with another exit status."""


@contextmanager
def _terminable() -> Iterator[None]:
    """Within this context, the first SIGTERM raises Terminated, unless the caller has us ignore it.

    Others are ignored: timeout(1) and batch systems send several, which would interrupt the removal of temporary files.
    """
    if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGTERM) is _terminate:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _terminate(*_: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise Terminated


@contextmanager
def executor(workers: Workers, sees: Sequence[str] = (), writes: Sequence[str] = ()) -> Iterator[Executor | None]:
    """An executor of the workers, or None for a single process: then the work is done in this one.

    The workers of a cluster must share with us the data at the paths `sees`, with all shards that are found there, and
    the directories of what is written at `writes`.
    """
    if workers.scheduler is not None:
        from touchfs.clusters.dask import cluster

        data = [*sees, *(shard for path in sees for shard in _shards_at(path))]
        places = list(dict.fromkeys(Location.of(path).absolute.path for path in data))
        directories = list(dict.fromkeys(_directory_of(path) for path in writes if not Location.of(path).is_url))
        with cluster(workers.scheduler, workers.processes, places, directories) as there:
            yield there
        return
    if workers.processes == 1:
        yield None
        return
    from touchfs.cli.pool import process_pool

    with process_pool(workers.processes) as pool:
        yield pool


def _shards_at(path: str) -> list[str]:
    """The shards of a dataset, which may be elsewhere, as a list names them; none if that is no dataset."""
    try:
        return find_shards(path)
    except TouchfsError:  # the process that reads it tells it
        return []


def _directory_of(path: str) -> str:
    """The directory that a path is, or will be made in."""
    place = os.path.abspath(path)
    while not os.path.isdir(place):
        place = os.path.dirname(place)
    return place
