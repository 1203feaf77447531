"""touchfs stat"""

from __future__ import annotations

import datetime
import json

import click

from touchfs.cli.command import Command
from touchfs.cli.dataset_argument import PATH, open_tree
from touchfs.cli.dataset_options import ReadOptions, dataset_options
from touchfs.cli.terminal import json_option, say
from touchfs.core.control_characters import quote_name
from touchfs.tree.tree import Entry


@click.command("stat", cls=Command)
@click.argument("location", metavar="DATASET[:PATH]", type=PATH)
@json_option
@dataset_options
def command(location: str, as_json: bool, read_options: ReadOptions) -> int:
    """Print the size, the key and the position of a file. The exit status is 1 if its size cannot be found.

    \b
    Example:
      touchfs stat shards/:shards/000000000/talks/monday.wav
    """
    tree, entry, path = open_tree(location, read_options)
    attributes = {f"user.touchfs.{name}": value for name, value in tree.attributes(entry.inode).items()}
    status = 1 if entry.size is None and not entry.is_directory else 0
    if as_json:
        facts = {"path": "/" + path, "type": kind_of(entry), "size": entry.size, "modified": entry.mtime_ns / 1e9}
        say(json.dumps({**facts, **attributes}))
        return status
    lines = {
        "path": "/" + path,
        "type": kind_of(entry),
        "size": format_size(entry.size),
        "modified": format_time(entry.mtime_ns),
    }
    for name, value in (lines | attributes).items():
        say(f"{name + ':':<22} {quote_name(value)}")
    return status


def kind_of(entry: Entry) -> str:
    """The kind of an entry: a word for `--json`."""
    return "directory" if entry.is_directory else "link" if entry.is_link else "file"


def format_size(size: int | None) -> str:
    """A size in bytes, `?` if the recording that it depends on cannot be read."""
    return "?" if size is None else str(size)


def format_time(time_ns: int) -> str:
    """A time in ns since 1970 as local time, `2026-01-31 23:59:59`."""
    return datetime.datetime.fromtimestamp(time_ns / 1e9).strftime("%Y-%m-%d %H:%M:%S")
