"""touchfs iterator"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import wraps
from typing import Any, BinaryIO, Protocol

import click
from click.core import ParameterSource

from touchfs.cli.command import DatasetsCommand, state_option
from touchfs.cli.command_group import CommandGroup
from touchfs.cli.dataset_argument import datasets_argument
from touchfs.cli.dataset_options import ReadOptions, dataset_options, ids_option
from touchfs.cli.mounted_iterators import MountedIterators, is_mount
from touchfs.cli.state_options import state_database_options
from touchfs.cli.stored_iterators import open_stored
from touchfs.cli.terminal import json_option, say_rows
from touchfs.core.control_characters import quote_name
from touchfs.core.errors import FormatError, TouchfsError, UsageError
from touchfs.core.token import from_json, to_json
from touchfs.dataset import counted
from touchfs.iterators.store_place import StateDatabase
from touchfs.select.ids.names import give


class NamedIterators(Protocol):
    """The iterators of a dataset, each with files as in `.touchfs/iterators/NAME`."""

    def names(self) -> list[str]:
        """The names of all iterators, in any order."""
        ...

    def create(self, name: str, spec: bytes) -> None:
        """Create an iterator. Raises UsageError if there is one of this name, or for a wrong spec."""
        ...

    def remove(self, name: str) -> None:
        """Remove an iterator. Raises NotFoundError."""
        ...

    def read(self, name: str, file: str) -> bytes:
        """The text of a file of an iterator; reading `next` makes a step. Raises NotFoundError, and why it cannot."""
        ...

    def write(self, name: str, file: str, text: bytes) -> None:
        """Write JSON to a file of an iterator. Raises NotFoundError, and UsageError for a wrong value."""
        ...


# The columns of `list` but the name, with the files that have them.
_COLUMNS = {"epoch": "epoch", "position": "position", "length": "len"}
Open = Callable[[], AbstractContextManager[NamedIterators]]


@click.group("iterator", cls=CommandGroup)
def command() -> None:
    """Create, step, save and restore named iterators.

    An iterator goes over a dataset. DATASET is as for `touchfs mount`, or a mount of it: both have the same iterators.
    Several are one, in their order.

    \b
    Example:
      touchfs iterator create shards/ train --spec '{"shuffle": 7, "batch": 4}'
      touchfs iterator next shards/ train
      touchfs iterator token shards/ train > checkpoint
      touchfs iterator restore shards/ train checkpoint
    """


def _of_a_dataset(function: Callable[..., Any]) -> Any:
    """The argument DATASET and its options. The command gets `open_iterators`, which opens the iterators there."""

    @wraps(function)
    def with_iterators(
        where: str,
        state_dir: str | None,
        state_database: StateDatabase | None,
        ids: tuple[str, ...],
        read_options: ReadOptions,
        **others: Any,
    ) -> Any:
        def open_iterators() -> AbstractContextManager[NamedIterators]:
            if is_mount(where):
                if read_options.options.split is not None:
                    raise UsageError("a mount has the split that it was mounted with: omit --split", path=where)
                if ids:
                    raise UsageError("a mount has the lists of ids that it was mounted with: omit --ids", path=where)
                return nullcontext(MountedIterators(where))
            give(ids)
            return open_stored(where, state_dir, state_database, read_options)

        return function(open_iterators, **others)

    state_dir = state_option("--state-dir", type=click.Path(), help="As for `touchfs mount`. [default: the user's]")
    of_state = ids_option()(state_dir(state_database_options(dataset_options(with_iterators))))
    return datasets_argument("where", "DATASET")(of_state)


@command.command("create")
@_of_a_dataset
@click.argument("name")
@click.option("--spec", default="{}", help="JSON with shuffle, batch, where and more: see docs/control-files.md.")
def create(open_iterators: Open, name: str, spec: str) -> None:
    """Create an iterator. SPEC defines its samples and their order.

    \b
    Example:
      touchfs iterator create shards/ train --spec '{"shuffle": 7, "batch": 4}'
    """
    text = spec.encode()
    _check_json(text, "--spec")
    with open_iterators() as iterators:
        iterators.create(name, text)


@command.command("next")
@_of_a_dataset
@click.argument("name")
def step(open_iterators: Open, name: str) -> None:
    """Take the next samples and print them, one per line. At the end of an epoch print nothing, once.

    \b
    Example:
      touchfs iterator create shards/ train
      touchfs iterator next shards/ train
    """
    _show(open_iterators, name, "next")


@command.command("token")
@_of_a_dataset
@click.argument("name")
def token(open_iterators: Open, name: str) -> None:
    """Print the state of an iterator, one line of JSON, for `restore`.

    \b
    Example:
      touchfs iterator create shards/ train
      touchfs iterator token shards/ train > checkpoint
    """
    _show(open_iterators, name, "token")


def _show(open_iterators: Open, name: str, file: str) -> None:
    with open_iterators() as iterators:
        text = iterators.read(name, file)
    sys.stdout.buffer.write(text)


@command.command("restore", cls=DatasetsCommand)
@_of_a_dataset
@click.argument("name")
@click.argument("file", metavar="[FILE]", type=click.File("rb"))
@click.option(
    "--extend",
    is_flag=True,
    help="Go on over a dataset that has grown, first with what is left. Without FILE: from where it is.",
)
def restore(open_iterators: Open, name: str, file: BinaryIO, extend: bool) -> None:
    """Restore an iterator from a token.

    The token is read from FILE. `-` is stdin, the default if there is one DATASET.

    \b
    Example:
      touchfs iterator create shards/ train
      touchfs iterator token shards/ train > checkpoint
      touchfs iterator restore shards/ train checkpoint
    """
    from touchfs.node.graph.state import say_growth

    text = b"{}"
    if not extend or click.get_current_context().get_parameter_source("file") is not ParameterSource.DEFAULT:
        text = file.read()
        _check_json(text, file.name)
    if extend:
        token = from_json(text)
        text = to_json({**token, "extend": True} if isinstance(token, dict) else token).encode()
    with open_iterators() as iterators:
        iterators.write(name, "token", text)
        after = iterators.read(name, "token") if extend else b""
    if extend:
        sys.stderr.write(f"touchfs: {say_growth(from_json(after))}\n")


@command.command("list")
@json_option
@_of_a_dataset
def names(open_iterators: Open, as_json: bool) -> None:
    """List the iterators: name, epoch, position and length of each.

    \b
    Example:
      touchfs iterator list shards/
    """
    with open_iterators() as iterators:
        rows = [_row(iterators, name) for name in sorted(iterators.names())]
    if as_json:
        say_rows(rows)
    elif rows:
        click.echo("\t".join(("name", *_COLUMNS)))
        for row in rows:
            columns = ["?" if row[each] is None else str(row[each]) for each in _COLUMNS]
            click.echo("\t".join([quote_name(str(row["name"])), *columns, *filter(None, [row["error"]])]))
    if failed := sum(row["error"] is not None for row in rows):
        raise TouchfsError(f"{counted(failed, 'iterator')} cannot continue: see the reason after the question marks")


def _row(iterators: NamedIterators, name: str) -> dict[str, Any]:
    try:
        values = [iterators.read(name, file).decode().strip() for file in _COLUMNS.values()]
    except TouchfsError as error:
        return {"name": name, **dict.fromkeys(_COLUMNS), "error": str(error)}
    numbers = (int(value) if value.isdecimal() else value for value in values)
    return {"name": name, **dict(zip(_COLUMNS, numbers, strict=True)), "error": None}


@command.command("diff")
@json_option
@click.argument("first", metavar="STATE", type=click.File("rb"))
@click.argument("second", metavar="STATE", type=click.File("rb"))
def diff(first: BinaryIO, second: BinaryIO, as_json: bool) -> None:
    """Print in what two states differ: files of `token`, of `touchfs iterate --save-state`, or of a loader.

    \b
    Example:
      touchfs iterate shards/ --shuffle 7 --take 3 --save-state one
      touchfs iterate shards/ --shuffle 7 --take 5 --save-state two
      touchfs iterator diff one two
    """
    states = []
    for file in (first, second):
        text = file.read()
        _check_json(text, file.name)
        states.append(dict(_fields(from_json(text))))
    names = [name for name in {**states[0], **states[1]} if states[0].get(name) != states[1].get(name)]
    rows = [{"field": name, "first": states[0].get(name), "second": states[1].get(name)} for name in names]
    if as_json:
        say_rows(rows)
    elif rows:
        click.echo("field\tfirst\tsecond")
        for row in rows:
            click.echo("\t".join("-" if value is None else quote_name(str(value)) for value in row.values()))


def _fields(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """The values in JSON that are no objects or lists, by their path."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inside:
        yield from _fields(each, f"{name}.{key}" if name else str(key))
    if not inside:
        yield name, value


@command.command("rm")
@_of_a_dataset
@click.argument("name")
def remove(open_iterators: Open, name: str) -> None:
    """Remove an iterator.

    \b
    Example:
      touchfs iterator create shards/ train
      touchfs iterator rm shards/ train
    """
    with open_iterators() as iterators:
        iterators.remove(name)


def _check_json(text: bytes, what: str) -> None:
    try:
        from_json(text)
    except FormatError as error:
        raise UsageError(f"{what}: {error}") from error
