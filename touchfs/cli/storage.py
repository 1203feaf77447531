"""touchfs storage"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import click

from touchfs.cli.command_group import CommandGroup
from touchfs.cli.terminal import json_option, say, say_rows
from touchfs.core.control_characters import quote_name
from touchfs.core.errors import SourceError
from touchfs.dataset import counted
from touchfs.limits import parse_size
from touchfs.storage import StoredItem, items_to_prune, list_storage, remove


@click.group("storage", cls=CommandGroup)
def command() -> None:
    """List and remove indexes, states and logs.

    touchfs keeps them for each dataset and mount, and also decompressed shards and rendered slices.

    \b
    Example:
      touchfs storage ls
      touchfs storage prune --dry-run
    """


def _state_dir(function: Callable[..., Any]) -> Any:
    return click.option("--state-dir", type=click.Path(), help="As for `touchfs mount`. [default: the user's]")(
        function
    )


@command.command("ls")
@json_option
@_state_dir
def listing(as_json: bool, state_dir: str | None) -> None:
    """List indexes, decompressed shards, states and logs.

    They are listed in the order in which `prune` removes them.

    \b
    Example:
      touchfs storage ls
    """
    items = list_storage(state_dir)
    if as_json:
        say_rows(map(asdict, items))
        return
    say(_HEADING)
    for item in items:
        say(_line(item))
    say(f"{sum(item.size for item in items):>15,} bytes in all")
    if any(item.is_silent for item in items):
        say("silent: the file system of the data does not answer, so nobody knows whether they are gone")


@command.command("prune")
@click.option(
    "--keep", metavar="SIZE", help="Also remove indexes, shards and logs until SIZE is left, for example 20G."
)
@click.option("--dry-run", is_flag=True, help="List the files, but do not remove them.")
@json_option
@_state_dir
def prune(keep: str | None, dry_run: bool, as_json: bool, state_dir: str | None) -> None:
    """Remove files whose data are gone.

    With --keep the least recently used files are removed, too. A file that a mount uses is never removed. Positions of
    iterators are removed only if their data are gone.

    \b
    Example:
      touchfs storage prune --keep 20G
    """
    chosen = items_to_prune(list_storage(state_dir), None if keep is None else parse_size(keep))
    for item in chosen:
        if not dry_run:
            try:
                remove(item)
            except OSError as error:
                raise SourceError(f"cannot be removed: {error.strerror}", path=error.filename) from error
        if not as_json:
            say(_line(item))
    if as_json:
        say_rows(map(asdict, chosen))
        return
    say(f"{sum(item.size for item in chosen):>15,} bytes in {counted(len(chosen), 'item')}")


_HEADING = f"{'bytes':>15} {'used':<10} {'kind':<7} {'':<6} about"


def _line(item: StoredItem) -> str:
    day = time.strftime("%Y-%m-%d", time.localtime(item.used))
    note = "in use" if item.is_used else "gone" if item.is_gone else "silent" if item.is_silent else ""
    about = "unknown" if item.about is None else quote_name(item.about)
    return f"{item.size:>15,} {day} {item.kind:<7} {note:<6} {about}"
