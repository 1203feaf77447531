"""touchfs cat"""

from __future__ import annotations

from collections.abc import Iterator

import click

from touchfs.cli.console import open_tree, source_options
from touchfs.extent import Buffer, Content

PIECE = 1 << 20


@click.command("cat")
@click.argument("locations", metavar="SOURCE:PATH…", nargs=-1, required=True)
@source_options
def command(locations: tuple[str, ...], sample_rate: int | None, in_place: bool) -> None:
    """Write files of a dataset to stdout, without mounting it.

    \b
    Example:
      touchfs cat shards/:shards/000000000/talks/monday.wav | sox - monday.flac
    """
    out = click.get_binary_stream("stdout")
    for location in locations:
        tree, entry, _ = open_tree(location, sample_rate=sample_rate, in_place=in_place)
        for piece in pieces(tree.content(entry.inode)):
            out.write(piece)


def pieces(content: Content) -> Iterator[Buffer]:
    """A content from its beginning to its end."""
    for offset in range(0, content.size, PIECE):
        yield content.read(offset, PIECE)
