"""touchfs cat"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import click

from touchfs.cli.command import Command
from touchfs.cli.dataset_argument import PATH, open_tree
from touchfs.cli.dataset_options import ReadOptions, dataset_options
from touchfs.core.errors import TouchfsError, UsageError
from touchfs.core.extent import Buffer
from touchfs.tree.tree import Entry, Tree

PIECE = 1 << 20


@click.command("cat", cls=Command)
@click.argument("locations", metavar="DATASET:PATH…", nargs=-1, required=True, type=PATH)
@dataset_options
def command(locations: tuple[str, ...], read_options: ReadOptions) -> None:
    """Write files of a dataset to stdout, without mounting it.

    \b
    Example:
      touchfs cat shards/:shards/000000000/talks/monday.wav | sox - monday.flac
    """
    for location in locations:
        tree, entry, _ = open_tree(location, read_options)
        if entry.is_directory:
            raise UsageError("is a directory: name a file in it, as `touchfs ls` lists them", path=location)
        sys.stdout.buffer.writelines(pieces(tree, entry, location))


def pieces(tree: Tree, entry: Entry, location: str) -> Iterator[Buffer]:
    """The bytes of a file from beginning to end, in pieces of at most `PIECE` bytes.

    Errors name the `location`, before the path of the shard if they have one: a shard has many files.
    """
    try:
        content = tree.content(entry.inode)
        for offset in range(0, content.size, PIECE):
            yield content.read(offset, PIECE)
    except TouchfsError as error:
        error.path = location if error.path is None else f"{location}: {error.path}"
        raise
