"""What commands share of the terminal: progress bars, SOURCE[:PATH] arguments, and options for opening a source."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Any, TypeVar

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from touchfs.dataset import Dataset, open_dataset
from touchfs.errors import NotFoundError
from touchfs.tree.tree import Entry, Tree

Command = TypeVar("Command", bound=Callable[..., Any])


def source_options(function: Command) -> Command:
    """The options of every command that opens a source."""
    options = (
        click.option("--sample-rate", type=click.IntRange(1), metavar="HZ", help="Rate of audio that names none."),
        click.option("--in-place", is_flag=True, help="Keep the index in .touchfs-index/ beside the data."),
    )
    for option in options:
        function = option(function)
    return function


@contextmanager
def progress_bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """A function that is told what is done and what there is. Drawn when stderr is a terminal, and the work is long."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda done, total: None
        return
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(what, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


@contextmanager
def executor(processes: int) -> Iterator[Executor | None]:
    """Processes to work in, or None for this one. Started afresh, as a fork would copy our threads' locks."""
    if processes == 1:
        yield None
        return
    with ProcessPoolExecutor(processes, mp_context=get_context("forkserver")) as pool:
        yield pool


def open_source(source: str, *, sample_rate: int | None, in_place: bool) -> Dataset:
    """Open a source, showing progress where it has to be indexed first."""
    with progress_bar("indexing") as progress:
        return open_dataset(source, sample_rate=sample_rate, in_place=in_place, progress=progress)


def open_tree(location: str, *, sample_rate: int | None, in_place: bool) -> tuple[Tree, Entry, str]:
    """The tree of SOURCE[:PATH], and the entry and path that PATH names; the root without one."""
    source, path = _split(location)
    dataset = open_source(source, sample_rate=sample_rate, in_place=in_place)
    # Without a mount inode numbers go nowhere: positions serve as shard ids.
    tree = Tree(dataset, range(1, len(dataset.shards) + 1))
    return tree, tree.resolve(path), path.strip("/")


def _split(location: str) -> tuple[str, str]:
    """SOURCE may hold colons: the longest one that exists counts."""
    if os.path.exists(location):
        return location, ""
    parts = location.split(":")
    for count in range(len(parts) - 1, 0, -1):
        source = ":".join(parts[:count])
        if os.path.exists(source):
            return source, ":".join(parts[count:])
    raise NotFoundError("no such source", path=parts[0])
