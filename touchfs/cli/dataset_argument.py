"""DATASET and DATASET:PATH, the arguments of commands that read a dataset: what they name is opened."""

from __future__ import annotations

from collections.abc import Callable
from shlex import quote
from typing import Any

import click

from touchfs.cli.dataset_options import ReadOptions, repeated_options
from touchfs.cli.progress import progress_bar
from touchfs.core.errors import NotFoundError
from touchfs.core.progress import Progress
from touchfs.dataset import Dataset
from touchfs.indexing import list_dataset, open_dataset
from touchfs.indexing.dataset_path import join_datasets, split_dataset_path
from touchfs.indexing.serving import why_unservable
from touchfs.tree.tree import Entry, Tree

# The type of datasets and mount points. click does not check them: `mount` reports errors with its own exit statuses.
PATH = click.Path(readable=False)


def datasets_argument(name: str, metavar: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """An argument for one dataset or several, which are one in their order. The command gets one DATASET[:PATH]."""
    return click.argument(name, metavar=f"{metavar}…", nargs=-1, required=True, type=PATH, callback=_joined)


def _joined(context: click.Context, parameter: click.Parameter, words: tuple[str, ...]) -> str:
    if len(words) < 2:
        return "".join(words)
    *others, last = words
    name, path = split_dataset_path(last)
    return join_datasets([*others, name]) + (f":{path}" if path else "")


def open_indexed(
    path: str,
    read_options: ReadOptions,
    patience_seconds: float | None = None,
    *,
    must_keep: bool = False,
    below: str = "",
) -> Dataset:
    """Open a dataset, or its shards `below` a path. Indexes it first if necessary, and shows progress meanwhile."""
    with progress_bar("indexing") as progress:
        return open_dataset(
            path,
            options=read_options.options,
            in_place=read_options.in_place,
            in_memory=read_options.in_memory,
            must_keep=must_keep,
            progress=progress,
            preparing=progress,
            finding_items=progress,
            patience_seconds=patience_seconds,
            below=below,
        )


def open_listed(path: str, read_options: ReadOptions, progress: Progress) -> Dataset:
    """Open a dataset as the list of its shards, of which each is indexed when somebody looks into it."""
    return list_dataset(
        path,
        options=read_options.options,
        in_place=read_options.in_place,
        in_memory=read_options.in_memory,
        progress=progress,
    )


def open_tree(location: str, read_options: ReadOptions) -> tuple[Tree, Entry, str]:
    """The tree of DATASET, and the entry and path of PATH in it, by default the root. Shards are indexed as far as PATH
    needs it. Raises NotFoundError.
    """
    name, path = split_dataset_path(location)
    with progress_bar("indexing") as progress:
        dataset = open_listed(name, read_options, progress)
        is_view = "/" not in path.strip("/")
        if is_view and len(dataset.listed) == 1 and not dataset.listed[0].known.compressed_files:
            dataset.indexed  # noqa: B018  so that it is known which views there are
        # Without a mount inode numbers are internal, so positions serve as shard ids.
        tree = Tree(dataset, range(1, len(dataset.listed) + 1))
        entry = _entry_at(tree, name, path, location)
        if entry.is_directory:
            next(tree.entries(entry.inode), None)  # indexes what is listed, while there is a bar
            entry = _entry_at(tree, name, path, location)  # a view may turn out not to be there
        return tree, entry, path


def _entry_at(tree: Tree, name: str, path: str, location: str) -> Entry:
    try:
        return tree.resolve(path)
    except NotFoundError as error:
        shows = f"`touchfs ls{repeated_options()} {quote(name)}` shows what there is"
        dataset = tree.dataset
        reason = why_unservable(dataset) if dataset.is_indexed else ""
        raise NotFoundError(f"{error.message}; {reason or shows}", path=location) from error
