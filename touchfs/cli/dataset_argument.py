"""DATASET and DATASET:PATH, the arguments of commands that read a dataset: what they name is opened."""

from __future__ import annotations

import os
import re
from shlex import quote

import click

from touchfs.cli.dataset_options import ReadOptions
from touchfs.cli.progress import progress_bar
from touchfs.dataset import Dataset
from touchfs.errors import NotFoundError
from touchfs.indexing import open_dataset
from touchfs.posix.paths import check_url, is_url
from touchfs.posix.paths.chains import InArchive, parse_in_archive
from touchfs.shard.lists.members import find_members, has_wildcards, match_wildcards
from touchfs.source.data import find_type
from touchfs.tree.tree import Entry, Tree

# A URL with the port of its host, which may be `[::1]`, and behind a colon a path in the dataset.
_URL = re.compile(r"([^:/]+://(?:\[[0-9a-fA-F:.]+\]|[^/:]*)(?::[0-9]+)?(?:/[^:]*)?)(?::(.*))?", re.DOTALL)
# The type of datasets and mount points. click does not check them: `mount` reports errors with its own exit statuses.
PATH = click.Path(readable=False)


def open_indexed(
    path: str, read_options: ReadOptions, patience_seconds: float | None = None, *, must_keep: bool = False
) -> Dataset:
    """Open a dataset. Indexes it first if necessary, and shows progress meanwhile."""
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
        )


def open_tree(location: str, read_options: ReadOptions) -> tuple[Tree, Entry, str]:
    """The tree of DATASET, and the entry and path of PATH in it, by default the root. Raises NotFoundError."""
    name, path = _split(location)
    dataset = open_indexed(name, read_options)
    # Without a mount inode numbers are internal, so positions serve as shard ids.
    tree = Tree(dataset, range(1, len(dataset.shards) + 1))
    try:
        return tree, tree.resolve(path), path.strip("/")
    except NotFoundError as error:
        raise NotFoundError(
            f"{error.message}; `touchfs ls {quote(name)}` shows what there is", path=location
        ) from error


def _split(location: str) -> tuple[str, str]:
    """Split DATASET[:PATH]. DATASET may contain colons: the longest one that exists is taken. A prefix of shard files
    exists if its index does, and a name with braces if a member does. A URL has colons only before its path, and nobody
    is asked whether it exists. A chain of URLs ends with its archive.
    """
    if (place := parse_in_archive(location)) is not None and not os.path.lexists(location):
        if location.startswith("zip+"):  # the form that ends with the name
            name, _, path = place.name.partition(":")
            return InArchive(place.archive, name).path, path
        archive, path = _split(place.archive)
        return InArchive(archive, place.name).chain, path
    check_url(location)
    if is_url(location) and (match := _URL.fullmatch(location)):
        return match[1], match[2] or ""
    if _exists(location):
        return location, ""
    parts = location.split(":")
    for count in range(len(parts) - 1, 0, -1):
        name = ":".join(parts[:count])
        if _exists(name):
            return name, ":".join(parts[count:])
    raise NotFoundError("no such file or directory", path=parts[0] or location)


def _exists(path: str) -> bool:
    return any(
        find_type(name) is not None
        or find_type(name + ".idx") is not None
        or (has_wildcards(name) and match_wildcards(name) != [])
        for name in find_members(path) or [path]
    )
