"""touchfs cp"""

from __future__ import annotations

import os
from collections.abc import Iterator

import click

from touchfs.cli.cat import pieces
from touchfs.cli.command import Command
from touchfs.cli.dataset_argument import PATH, open_tree
from touchfs.cli.dataset_options import ReadOptions, dataset_options
from touchfs.cli.terminal import complain
from touchfs.core.errors import FormatError, SourceError, UsageError
from touchfs.core.extent import Buffer
from touchfs.core.names import REPORT
from touchfs.indexing.report import summary
from touchfs.tree.tree import Entry, Tree


@click.command("cp", cls=Command)
@click.argument("location", metavar="DATASET:PATH", type=PATH)
@click.argument("destination", type=click.Path())
@click.option("-r", "--recursive", is_flag=True, help="Copy directories with their contents.")
@dataset_options
def command(location: str, destination: str, recursive: bool, read_options: ReadOptions) -> int:
    """Copy files out of a dataset, without mounting it. Existing files are overwritten, as by cp.

    Damaged files and shards with errors are reported; the others are copied, and the exit status is 1.

    \b
    Example:
      touchfs cp -r shards/:segments/000000000/talks/monday ./monday
    """
    tree, entry, path = open_tree(location, read_options)
    if entry.is_directory and not recursive:
        raise UsageError("is a directory: copy it with -r", path=location)
    if os.path.isdir(destination) and path:
        destination = os.path.join(destination, os.path.basename(path))
    status = 0
    for error in _copy(tree, entry, path, destination):
        complain(f"touchfs: {error}")
        status = 1
    return status


def _copy(tree: Tree, entry: Entry, path: str, destination: str) -> Iterator[FormatError]:
    if entry.is_directory:
        os.makedirs(destination, exist_ok=True)
        for name, child, _ in tree.entries(entry.inode):
            below = os.path.join(path, os.fsdecode(name))
            yield from _copy(tree, child, below, os.path.join(destination, os.fsdecode(name)))
            if name == REPORT.encode() and "key" not in tree.attributes(child.inode):
                content = tree.content(child.inode)
                yield FormatError(summary(bytes(content.read(0, content.size)).decode()), path=below)
    elif entry.is_link:
        _link(tree.link(entry.inode), destination)
    else:
        try:
            _write(pieces(tree, entry, path), destination)
        except FormatError as error:
            yield error


def _write(data: Iterator[Buffer], path: str) -> None:
    first = next(data, b"")  # before the file is made: of one that cannot be read, nothing is left
    try:
        with open(path, "wb") as file:
            file.write(first)
            file.writelines(data)
    except OSError as error:
        raise SourceError(f"cannot be written: {error.strerror}", path=path) from error


def _link(target: bytes, path: str) -> None:
    try:
        if os.path.islink(path):
            os.unlink(path)
        os.symlink(os.fsdecode(target), path)
    except OSError as error:
        raise SourceError(f"cannot be written: {error.strerror}", path=path) from error
