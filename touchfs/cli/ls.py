"""touchfs ls"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import click

from touchfs.cli.command import Command
from touchfs.cli.dataset_argument import datasets_argument, open_tree
from touchfs.cli.dataset_options import ReadOptions, dataset_options
from touchfs.cli.progress import BYTES, amount
from touchfs.cli.stat import format_size, format_time, kind_of
from touchfs.cli.terminal import complain, json_option, say_rows
from touchfs.indexing.serving import unshown_audio, why_unservable
from touchfs.tree.tree import Entry, Tree


@click.command("ls", cls=Command, context_settings={"help_option_names": ["--help"]})  # -h is that of ls(1)
@datasets_argument("location", "DATASET[:PATH]")
@click.option("-l", "long", is_flag=True, help="Print sizes and times too.")
@click.option("-h", "human", is_flag=True, help="With -l, print sizes as 1.2 MB.")
@click.option("-R", "recursive", is_flag=True, help="List what is in the directories, too, as paths.")
@json_option
@dataset_options
def command(location: str, long: bool, human: bool, recursive: bool, as_json: bool, read_options: ReadOptions) -> int:
    """List a directory of a dataset, without mounting it. The exit status is 1 if a size cannot be found.

    \b
    Example:
      touchfs ls -l shards/:segments/000000000
      touchfs ls -R shards/:segments
    """
    tree, entry, path = open_tree(location, read_options)
    reason = why_unservable(tree.dataset) if tree.dataset.is_indexed else ""
    if advice := reason or unshown_audio(tree.dataset):
        complain(f"touchfs: {advice}")
    status = 0

    def sized() -> Iterator[tuple[bytes, Entry]]:
        nonlocal status
        for name, child in _listed(tree, entry, path, recursive):
            if (long or as_json) and child.size is None:  # a recording must be read to know it
                child = tree.entry(child.inode)
                status = 1 if child.size is None else status
            yield name, child

    if as_json:
        say_rows(
            {"name": os.fsdecode(name), "type": kind_of(child), "size": child.size, "modified": child.mtime_ns / 1e9}
            for name, child in sized()
        )
        return status
    for name, child in sized():
        size = amount(child.size, BYTES) if human and child.size is not None else format_size(child.size)
        before = f"{size:>12} {format_time(child.mtime_ns)} ".encode() if long else b""
        sys.stdout.buffer.write(before + name + (b"/" if child.is_directory else b"") + b"\n")
    return status


def _listed(tree: Tree, entry: Entry, path: str, recursive: bool) -> Iterator[tuple[bytes, Entry]]:
    """The entries of a directory by name, or with all below it by path. A file is the only entry of itself."""
    if not entry.is_directory:
        yield os.fsencode(os.path.basename(path)), entry
        return
    for name, child, _ in tree.entries(entry.inode):
        yield name, child
        if recursive and child.is_directory:
            yield from ((name + b"/" + below, each) for below, each in _listed(tree, child, "", recursive))
