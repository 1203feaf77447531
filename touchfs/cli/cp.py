"""touchfs cp"""

from __future__ import annotations

import os

import click

from touchfs.cli.cat import pieces
from touchfs.cli.dataset_argument import PATH, open_tree
from touchfs.cli.dataset_options import ReadOptions, dataset_options
from touchfs.errors import SourceError, UsageError
from touchfs.tree.tree import Entry, Tree


@click.command("cp")
@click.argument("location", metavar="DATASET:PATH", type=PATH)
@click.argument("destination", type=click.Path())
@click.option("-r", "--recursive", is_flag=True, help="Copy directories with their contents.")
@dataset_options
def command(location: str, destination: str, recursive: bool, read_options: ReadOptions) -> None:
    """Copy files out of a dataset, without mounting it. Existing files are overwritten, as by cp.

    \b
    Example:
      touchfs cp -r shards/:segments/000000000/talks/monday ./monday
    """
    tree, entry, path = open_tree(location, read_options)
    if entry.is_directory and not recursive:
        raise UsageError("is a directory: copy it with -r", path=location)
    if os.path.isdir(destination) and path:
        destination = os.path.join(destination, os.path.basename(path))
    _copy(tree, entry, destination)


def _copy(tree: Tree, entry: Entry, destination: str) -> None:
    if entry.is_directory:
        os.makedirs(destination, exist_ok=True)
        for name, child, _ in tree.entries(entry.inode):
            _copy(tree, child, os.path.join(destination, os.fsdecode(name)))
        return
    if entry.is_link:
        _link(tree.link(entry.inode), destination)
        return
    content = tree.content(entry.inode)
    try:
        with open(destination, "wb") as file:
            file.writelines(pieces(content))
    except OSError as error:
        raise SourceError(f"cannot be written: {error.strerror}", path=destination) from error


def _link(target: bytes, path: str) -> None:
    try:
        if os.path.islink(path):
            os.unlink(path)
        os.symlink(os.fsdecode(target), path)
    except OSError as error:
        raise SourceError(f"cannot be written: {error.strerror}", path=path) from error
