"""touchfs ls"""

from __future__ import annotations

import os
import sys

import click

from touchfs.cli.command import Command
from touchfs.cli.dataset_argument import datasets_argument, open_tree
from touchfs.cli.dataset_options import ReadOptions, dataset_options
from touchfs.cli.stat import format_size, format_time
from touchfs.indexing.serving import unshown_audio


@click.command("ls", cls=Command)
@datasets_argument("location", "DATASET[:PATH]")
@click.option("-l", "long", is_flag=True, help="Print sizes and times too.")
@dataset_options
def command(location: str, long: bool, read_options: ReadOptions) -> int:
    """List a directory of a dataset, without mounting it. The exit status is 1 if a size cannot be found.

    \b
    Example:
      touchfs ls -l shards/:segments/000000000
    """
    tree, entry, path = open_tree(location, read_options)
    listed = tree.entries(entry.inode) if entry.is_directory else [(os.fsencode(os.path.basename(path)), entry, 0)]
    if advice := unshown_audio(tree.dataset):
        click.echo(f"touchfs: {advice}", err=True)
    status = 0
    for name, child, _ in listed:
        if long and child.size is None:  # a recording must be read to know it
            child = tree.entry(child.inode)
            status = 1 if child.size is None else status
        before = f"{format_size(child.size):>12} {format_time(child.mtime_ns)} ".encode() if long else b""
        sys.stdout.buffer.write(before + name + (b"/" if child.is_directory else b"") + b"\n")
    return status
