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

from touchfs.cli.console import PATH, Reading, open_source, source_options
from touchfs.cli.terminal import printable
from touchfs.dataset import counted
from touchfs.errors import FormatError, NotFoundError, SourceError, TouchfsError, UsageError
from touchfs.iterators.iterators import Iterators
from touchfs.store.place import STATE_SUFFIX, state_path
from touchfs.store.store import StateStore
from touchfs.token import from_json

CONTROL = os.path.join(".touchfs", "iterators")


@click.group("iterator")
def command() -> None:
    """Make, step, save and restore named iterators.

    They are over a dataset: WHERE is a mount of it, or its source, which has the same ones as its mounts.

    \b
    Example:
      touchfs iterator create shards/ train --spec '{"shuffle": 7, "batch": 4}'
      touchfs iterator next shards/ train
      touchfs iterator token shards/ train > checkpoint
      touchfs iterator restore shards/ train checkpoint
    """


def _options(function: Callable[..., Any]) -> Any:
    with_state = click.option("--state-dir", type=click.Path(), help="As of `touchfs mount`. [default: the user's]")
    return click.argument("where", type=PATH)(with_state(source_options(function)))


@command.command("create")
@_options
@click.argument("name")
@click.option("--spec", default="{}", help="JSON, as the README of a mount's .touchfs/iterators tells.")
def create(where: str, name: str, spec: str, state_dir: str | None, reading: Reading) -> None:
    """Make an iterator, at the start of what SPEC says.

    \b
    Example:
      touchfs iterator create shards/ train --spec '{"shuffle": 7, "batch": 4}'
    """
    value = _json(spec.encode(), "--spec")
    if is_mount(where):
        with _errors_of(where, name):
            os.mkdir(_path(where, name))
        try:
            with _errors_of(where, name):
                _write(where, name, "spec", spec.encode())
        except BaseException:
            os.rmdir(_path(where, name))
            raise
        return
    with _opened(where, state_dir, reading) as iterators:
        iterator = iterators.create(name)
        try:
            iterators.write(iterator, "spec", value)
        except BaseException:
            iterators.remove(name)
            raise


@command.command("next")
@_options
@click.argument("name")
def step(where: str, name: str, state_dir: str | None, reading: Reading) -> None:
    """Take the next samples and write them, one a line; nothing at the end of an epoch, once.

    \b
    Example:
      touchfs iterator create shards/ train
      touchfs iterator next shards/ train
    """
    _show(where, name, "next", state_dir, reading)


@command.command("token")
@_options
@click.argument("name")
def token(where: str, name: str, state_dir: str | None, reading: Reading) -> None:
    """Write where it is: one line of JSON, to be restored.

    \b
    Example:
      touchfs iterator create shards/ train
      touchfs iterator token shards/ train > checkpoint
    """
    _show(where, name, "token", state_dir, reading)


@command.command("restore")
@_options
@click.argument("name")
@click.argument("file", type=click.File("rb"), default="-")
def restore(where: str, name: str, file: Any, state_dir: str | None, reading: Reading) -> None:
    """Go on from the token in FILE, or in what comes in.

    \b
    Example:
      touchfs iterator create shards/ train
      touchfs iterator token shards/ train > checkpoint
      touchfs iterator restore shards/ train checkpoint
    """
    text = file.read()
    value = _json(text, file.name)
    if is_mount(where):
        with _errors_of(where, name):
            _write(where, name, "token", text)
        return
    with _opened(where, state_dir, reading) as iterators:
        iterators.write(_found(iterators, name), "token", value)


@command.command("list")
@_options
def names(where: str, state_dir: str | None, reading: Reading) -> None:
    """List the iterators: names, epochs, positions and lengths.

    \b
    Example:
      touchfs iterator list shards/
    """
    with ExitStack() as stack:
        if is_mount(where):
            found = [name for name in os.listdir(os.path.join(where, CONTROL)) if name != "README"]
            read: Callable[[str, str], str] = partial(_told_by_mount, where)
        else:
            iterators = stack.enter_context(_opened(where, state_dir, reading))
            found, read = iterators.names(), partial(_told, iterators)
        lost = 0
        for name in sorted(found):
            try:
                told = [read(name, file).strip() for file in ("epoch", "position", "len")]
            except TouchfsError as error:
                lost, told = lost + 1, ["?", "?", "?", str(error)]
            click.echo("\t".join(map(printable, [name, *told])))
    if lost:
        raise TouchfsError(f"{counted(lost, 'iterator')} cannot go on: what is behind the question marks says why")


def _told(iterators: Iterators, name: str, file: str) -> str:
    return iterators.read(_found(iterators, name), file)


def _told_by_mount(where: str, name: str, file: str) -> str:
    with _errors_of(where, name):
        return _read(where, name, file).decode()


@command.command("rm")
@_options
@click.argument("name")
def remove(where: str, name: str, state_dir: str | None, reading: Reading) -> None:
    """Remove an iterator.

    \b
    Example:
      touchfs iterator create shards/ train
      touchfs iterator rm shards/ train
    """
    if is_mount(where):
        with _errors_of(where, name):
            os.rmdir(_path(where, name))
        return
    with _opened(where, state_dir, reading) as iterators:
        iterators.remove(name)


def _show(where: str, name: str, file: str, state_dir: str | None, reading: Reading) -> None:
    if is_mount(where):
        with _errors_of(where, name):
            text = _read(where, name, file)
    else:
        with _opened(where, state_dir, reading) as iterators:
            text = iterators.read(_found(iterators, name), file).encode(errors="surrogateescape")
    sys.stdout.buffer.write(text)


def is_mount(where: str) -> bool:
    if os.path.isdir(os.path.join(where, CONTROL)):
        return True
    if os.path.isfile(os.path.join(where, ".touchfs", "info")):
        raise UsageError("a read-only mount has no iterators: give the dataset that it is of", path=where)
    return False


@contextmanager
def _opened(source: str, state_dir: str | None, reading: Reading) -> Iterator[Iterators]:
    dataset = open_source(source, reading)
    with closing(StateStore(state_path(source, STATE_SUFFIX, state_dir))) as store:
        yield Iterators(store, dataset)


def _found(iterators: Iterators, name: str) -> int:
    iterator = iterators.find(name)
    if iterator is None:
        raise NotFoundError(f"there is no iterator {name!r}: `touchfs iterator list` shows those there are")
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
def _errors_of(where: str, name: str) -> Iterator[None]:
    """What a file of a mount refused, in the words of its iterator."""
    try:
        yield
    except FileNotFoundError as error:
        raise NotFoundError(f"there is no iterator {name!r}: `touchfs iterator list` shows those there are") from error
    except FileExistsError as error:
        raise UsageError(f"there is an iterator {name!r} already") from error
    except OSError as error:
        told = ""
        if error.errno == errno.EINVAL:
            with suppress(OSError):
                told = _read(where, name, "error").decode("utf-8", "replace").strip()
            raise UsageError(told or f"an iterator cannot be called {name!r:.80}") from error
        raise SourceError(error.strerror or str(error), path=_path(where, name)) from error
