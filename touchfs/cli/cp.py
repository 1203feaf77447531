"""touchfs cp"""

from __future__ import annotations

import os

import click

from touchfs.cli.cat import pieces
from touchfs.cli.console import open_tree, source_options
from touchfs.errors import UsageError
from touchfs.source.atomic import atomic_file
from touchfs.tree.tree import Entry, Tree


@click.command("cp")
@click.argument("location", metavar="SOURCE:PATH")
@click.argument("destination", type=click.Path())
@click.option("-r", "--recursive", is_flag=True, help="Copy a directory and all below it.")
@source_options
def command(location: str, destination: str, recursive: bool, sample_rate: int | None, in_place: bool) -> None:
    """Copy files out of a dataset, without mounting it.

    \b
    Example:
      touchfs cp -r shards/:segments/000000000/talks/monday ./monday
    """
    tree, entry, path = open_tree(location, sample_rate=sample_rate, in_place=in_place)
    if entry.is_directory and not recursive:
        raise UsageError("is a directory: copy it with -r", path=path or "/")
    if os.path.isdir(destination) and path:
        destination = os.path.join(destination, os.path.basename(path))
    _copy(tree, entry, destination)


def _copy(tree: Tree, entry: Entry, destination: str) -> None:
    if not entry.is_directory:
        with atomic_file(destination) as file:
            for piece in pieces(tree.content(entry.inode)):
                file.write(piece)
        os.utime(destination, ns=(entry.mtime_ns, entry.mtime_ns))
        return
    os.makedirs(destination, exist_ok=True)
    for name, child, _ in tree.entries(entry.inode):
        _copy(tree, child, os.path.join(destination, os.fsdecode(name)))
