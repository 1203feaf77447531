"""touchfs storage"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import click

from touchfs.cli.terminal import printable, say
from touchfs.dataset import counted
from touchfs.errors import SourceError
from touchfs.source.scratch import parse_size
from touchfs.storage import Stored, list_storage, remove, to_prune


@click.group("storage")
def command() -> None:
    """Show and remove indexes, states and logs.

    They are kept for each dataset and mount, as are decompressed shards.

    \b
    Example:
      touchfs storage ls
      touchfs storage prune --dry-run
    """


def _state_dir(function: Callable[..., Any]) -> Any:
    return click.option("--state-dir", type=click.Path(), help="As of `touchfs mount`. [default: the user's]")(function)


@command.command("ls")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
@_state_dir
def listing(as_json: bool, state_dir: str | None) -> None:
    """List what is kept, in the order in which `prune` removes it.

    \b
    Example:
      touchfs storage ls
    """
    stored = list_storage(state_dir)
    if as_json:
        say(json.dumps([asdict(each) for each in stored]))
        return
    for each in stored:
        say(_line(each))
    say(f"{sum(each.size for each in stored):>15,} bytes in all")


@command.command("prune")
@click.option("--keep", metavar="SIZE", help="Also remove what can be made again, until at most this is left, as 20G.")
@click.option("--dry-run", is_flag=True, help="Only list what would be removed.")
@_state_dir
def prune(keep: str | None, dry_run: bool, state_dir: str | None) -> None:
    """Remove what is kept for data that are gone, and with --keep what was used least lately.

    Nothing that a mount uses is removed. Positions of iterators are removed only when their data are gone.

    \b
    Example:
      touchfs storage prune --keep 20G
    """
    chosen = to_prune(list_storage(state_dir), None if keep is None else parse_size(keep))
    for each in chosen:
        if not dry_run:
            try:
                remove(each)
            except OSError as error:
                raise SourceError(f"cannot be removed: {error.strerror}", path=error.filename) from error
        say(_line(each))
    say(f"{sum(each.size for each in chosen):>15,} bytes in {counted(len(chosen), 'thing')}")


def _line(stored: Stored) -> str:
    day = time.strftime("%Y-%m-%d", time.localtime(stored.used))
    note = "in use" if stored.is_used else "gone" if stored.is_gone else ""
    about = "unknown" if stored.about is None else printable(stored.about)
    return f"{stored.size:>15,} {day} {stored.kind:<7} {note:<6} {about}"
