"""touchfs iterator"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from typing import Any

import click

from touchfs.cli.dataset_argument import PATH, open_indexed
from touchfs.cli.dataset_options import ReadOptions, dataset_options
from touchfs.cli.state_options import state_database_options
from touchfs.cli.terminal import printable
from touchfs.dataset import counted
from touchfs.dataset.samples import DatasetSamples
from touchfs.errors import FormatError, NotFoundError, SourceError, TouchfsError, UsageError
from touchfs.iterators.iterators import Iterators
from touchfs.iterators.store_place import StateDatabase
from touchfs.store.place import STATE_SUFFIX, state_path
from touchfs.store.store import StateStore
from touchfs.token import from_json

CONTROL = os.path.join(".touchfs", "iterators")


@click.group("iterator")
def command() -> None:
    """Create, step, save and restore named iterators.

    An iterator goes over a dataset. DATASET is as for `touchfs mount`, or a mount of it: both have the same iterators.

    \b
    Example:
      touchfs iterator create shards/ train --spec '{"shuffle": 7, "batch": 4}'
      touchfs iterator next shards/ train
      touchfs iterator token shards/ train > checkpoint
      touchfs iterator restore shards/ train checkpoint
    """


def _options(function: Callable[..., Any]) -> Any:
    state_option = click.option("--state-dir", type=click.Path(), help="As for `touchfs mount`. [default: the user's]")
    return click.argument("where", metavar="DATASET", type=PATH)(
        state_option(state_database_options(dataset_options(function)))
    )


@command.command("create")
@_options
@click.argument("name")
@click.option("--spec", default="{}", help="JSON, described in the README of a mount's .touchfs/iterators.")
def create(
    where: str,
    name: str,
    spec: str,
    state_dir: str | None,
    state_database: StateDatabase | None,
    read_options: ReadOptions,
) -> None:
    """Create an iterator. SPEC defines its samples and their order.

    \b
    Example:
      touchfs iterator create shards/ train --spec '{"shuffle": 7, "batch": 4}'
    """
    value = _json(spec.encode(), "--spec")
    if is_mount(where):
        with _mount_errors(where, name):
            os.mkdir(_path(where, name))
        try:
            with _mount_errors(where, name):
                _write(where, name, "spec", spec.encode())
        except BaseException:
            os.rmdir(_path(where, name))
            raise
        return
    with _open_iterators(where, state_dir, state_database, read_options) as iterators:
        iterator = iterators.create(name)
        try:
            iterators.write(iterator, "spec", value)
        except BaseException:
            iterators.remove(name)
            raise


@command.command("next")
@_options
@click.argument("name")
def step(
    where: str, name: str, state_dir: str | None, state_database: StateDatabase | None, read_options: ReadOptions
) -> None:
    """Take the next samples and print them, one per line. At the end of an epoch print nothing, once.

    \b
    Example:
      touchfs iterator create shards/ train
      touchfs iterator next shards/ train
    """
    _show(where, name, "next", state_dir, state_database, read_options)


@command.command("token")
@_options
@click.argument("name")
def token(
    where: str, name: str, state_dir: str | None, state_database: StateDatabase | None, read_options: ReadOptions
) -> None:
    """Print the state of an iterator, one line of JSON, for `restore`.

    \b
    Example:
      touchfs iterator create shards/ train
      touchfs iterator token shards/ train > checkpoint
    """
    _show(where, name, "token", state_dir, state_database, read_options)


@command.command("restore")
@_options
@click.argument("name")
@click.argument("file", type=click.File("rb"), default="-")
def restore(
    where: str,
    name: str,
    file: Any,
    state_dir: str | None,
    state_database: StateDatabase | None,
    read_options: ReadOptions,
) -> None:
    """Restore an iterator from a token.

    The token is read from FILE, or from stdin.

    \b
    Example:
      touchfs iterator create shards/ train
      touchfs iterator token shards/ train > checkpoint
      touchfs iterator restore shards/ train checkpoint
    """
    text = file.read()
    value = _json(text, file.name)
    if is_mount(where):
        with _mount_errors(where, name):
            _write(where, name, "token", text)
        return
    with _open_iterators(where, state_dir, state_database, read_options) as iterators:
        iterators.write(_find(iterators, name), "token", value)


@command.command("list")
@_options
def names(where: str, state_dir: str | None, state_database: StateDatabase | None, read_options: ReadOptions) -> None:
    """List the iterators: name, epoch, position and length of each.

    \b
    Example:
      touchfs iterator list shards/
    """
    with ExitStack() as stack:
        if is_mount(where):
            found = [name for name in os.listdir(os.path.join(where, CONTROL)) if name != "README"]
            read: Callable[[str, str], str] = partial(_read_mount, where)
        else:
            iterators = stack.enter_context(_open_iterators(where, state_dir, state_database, read_options))
            found, read = iterators.names(), partial(_read_store, iterators)
        failed = 0
        for name in sorted(found):
            try:
                columns = [read(name, file).strip() for file in ("epoch", "position", "len")]
            except TouchfsError as error:
                failed, columns = failed + 1, ["?", "?", "?", str(error)]
            click.echo("\t".join(map(printable, [name, *columns])))
    if failed:
        raise TouchfsError(f"{counted(failed, 'iterator')} cannot continue: see the reason after the question marks")


def _read_store(iterators: Iterators, name: str, file: str) -> str:
    return iterators.read(_find(iterators, name), file)


def _read_mount(where: str, name: str, file: str) -> str:
    with _mount_errors(where, name):
        return _read(where, name, file).decode()


@command.command("rm")
@_options
@click.argument("name")
def remove(
    where: str, name: str, state_dir: str | None, state_database: StateDatabase | None, read_options: ReadOptions
) -> None:
    """Remove an iterator.

    \b
    Example:
      touchfs iterator create shards/ train
      touchfs iterator rm shards/ train
    """
    if is_mount(where):
        with _mount_errors(where, name):
            os.rmdir(_path(where, name))
        return
    with _open_iterators(where, state_dir, state_database, read_options) as iterators:
        iterators.remove(name)


def _show(
    where: str,
    name: str,
    file: str,
    state_dir: str | None,
    state_database: StateDatabase | None,
    read_options: ReadOptions,
) -> None:
    if is_mount(where):
        with _mount_errors(where, name):
            text = _read(where, name, file)
    else:
        with _open_iterators(where, state_dir, state_database, read_options) as iterators:
            text = iterators.read(_find(iterators, name), file).encode(errors="surrogateescape")
    sys.stdout.buffer.write(text)


def is_mount(where: str) -> bool:
    """True if `where` is a mount with iterators. Raises UsageError for a read-only mount."""
    if os.path.isdir(os.path.join(where, CONTROL)):
        return True
    if os.path.isfile(os.path.join(where, ".touchfs", "info")):
        raise UsageError("a read-only mount has no iterators: use the dataset's own path", path=where)
    return False


@contextmanager
def _open_iterators(
    path: str, state_dir: str | None, state_database: StateDatabase | None, read_options: ReadOptions
) -> Iterator[Iterators]:
    dataset = open_indexed(path, read_options)
    local, store = state_path(path, STATE_SUFFIX, state_dir), None
    if state_database is not None:
        from touchfs.store.postgres.store import PostgresStore

        place = state_database.place(path, os.path.dirname(local))
        store = PostgresStore(place, lambda: DatasetSamples(dataset).fingerprint)
    with closing(store or StateStore(local)) as opened:
        yield Iterators(opened, dataset)


def _find(iterators: Iterators, name: str) -> int:
    iterator = iterators.find(name)
    if iterator is None:
        raise NotFoundError(f"there is no iterator {name!r}: `touchfs iterator list` shows all")
    return iterator


def _json(text: bytes, what: str) -> Any:
    try:
        return from_json(text)
    except FormatError as error:
        raise UsageError(f"{what}: {error}") from error


def _path(where: str, name: str) -> str:
    if "/" in name or name in ("", ".", "..", "README"):
        raise UsageError(f"an iterator cannot be called {name!r:.80}: choose a name of letters and digits")
    return os.path.join(where, CONTROL, name)


def _read(where: str, name: str, file: str) -> bytes:
    with open(os.path.join(_path(where, name), file), "rb", 0) as opened:
        return opened.readall()


def _write(where: str, name: str, file: str, text: bytes) -> None:
    descriptor = os.open(os.path.join(_path(where, name), file), os.O_WRONLY)
    try:
        while text:
            text = text[os.write(descriptor, text) :]
    finally:
        os.close(descriptor)


@contextmanager
def _mount_errors(where: str, name: str) -> Iterator[None]:
    """Turn an OSError from a mount's control files into the error that describes its cause."""
    try:
        yield
    except FileNotFoundError as error:
        raise NotFoundError(f"there is no iterator {name!r}: `touchfs iterator list` shows all") from error
    except FileExistsError as error:
        raise UsageError(f"there is an iterator {name!r} already") from error
    except OSError as error:
        message = ""
        if error.errno == errno.EINVAL:
            with suppress(OSError):
                message = _read(where, name, "error").decode("utf-8", "replace").strip()
            raise UsageError(message or f"an iterator cannot be called {name!r:.80}") from error
        raise SourceError(error.strerror or str(error), path=_path(where, name)) from error
