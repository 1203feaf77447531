"""Terminal helpers of commands: printing lines, and logging."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Iterable, Mapping
from typing import NoReturn

import click

from touchfs.core.control_characters import LineFormatter, one_line
from touchfs.core.urls import without_secrets


def say(text: str) -> None:
    """Print a line on stdout."""
    click.echo(one_line(text).encode())


def complain(text: str) -> None:
    """Print a line on stderr."""
    click.echo(one_line(text).encode(), err=True)


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def say_rows(rows: Iterable[Mapping[str, object]]) -> None:
    """Print the rows of a table as JSON: an array with an object, on a line, for each."""
    line = "["
    for row in rows:
        if line != "[":
            say(f"{line},")
            line = ""
        line += json.dumps(row)
    say(f"{line}]")


def announce(text: str) -> None:
    """Print a line, as `say` does. If stdout cannot be written, the line is lost, and that is no error."""
    try:
        say(text)
    except OSError:
        discard_stdout()


def discard_stdout() -> None:
    """Discard what stdout could not write, and all that follows."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)


def open_closed_streams() -> None:
    """Open those of stdin, stdout and stderr that the caller closed: no other file may get their descriptors.

    `sys.stdin` stays None then, as there is nothing to read.
    """
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened == descriptor:
                os.set_inheritable(opened, True)
            else:
                os.dup2(opened, descriptor)
                os.close(opened)
            if descriptor:
                setattr(sys, name, open(descriptor, "w"))  # noqa: SIM115


def exit_at_once(status: int) -> NoReturn:
    """Flush the standard streams and exit, without freeing all modules and objects first.

    That takes a fifth of the time of `touchfs mount`, as each page that it writes to is shared with the daemon. Only
    for a process without threads and functions to be called at exit. Raises OSError if the streams cannot be written.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def log_to_stderr(form: str = "touchfs: %(message)s") -> None:
    """Log warnings and errors to stderr, one per line."""
    handler = logging.StreamHandler()
    handler.setFormatter(LineFormatter(form, without_secrets))
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
