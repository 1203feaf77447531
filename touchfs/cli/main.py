"""The `touchfs` command. Commands are imported when they are called, so none waits for another's imports.

Errors are one line: what, and what to do. Exit status 1, or 2 for a wrong command; `mount` has a table of its own.
"""

from __future__ import annotations

import importlib
import os
import resource
import sys

import click

from touchfs.cli.terminal import log_to_stderr, printable
from touchfs.errors import MountError, TouchfsError, UsageError

DESCRIPTORS = 1 << 16
COMMANDS = (
    "cat",
    "convert",
    "cp",
    "index",
    "info",
    "iterate",
    "iterator",
    "ls",
    "meta",
    "mount",
    "pack",
    "reload",
    "stat",
    "storage",
    "umount",
)


class _Commands(click.Group):
    def list_commands(self, context: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"touchfs.cli.{name}").command
        return command


@click.command(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]}, invoke_without_command=True)
@click.version_option(package_name="touchfs")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.pass_context
def group(context: click.Context, debug: bool) -> None:
    """Mount indexed dataset shards as a directory of ordinary files.

    \b
    Example:
      touchfs mount shards/ /mnt/speech
      ls /mnt/speech/shards
      touchfs umount /mnt/speech
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


def main() -> None:
    """The entry point: runs the command, and turns errors into a line and an exit status."""
    if sys.stdout is None:  # closed by whoever called us
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    _raise_descriptor_limit()
    log_to_stderr()
    status = 0
    try:
        # In standalone mode click would exit by itself, and print tracebacks of our errors.
        returned = group.main(prog_name="touchfs", standalone_mode=False)
        status = returned if isinstance(returned, int) else 0
        sys.stdout.flush()
    except click.exceptions.Abort:
        status = 130
    except BrokenPipeError:
        status = 1  # as click's when it meets it, and as quiet: the reader has seen enough
    except (click.ClickException, TouchfsError, OSError) as error:
        if "--debug" in sys.argv[1:2]:
            raise
        line, status = _told(error)
        click.echo(printable(line), err=True)
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what is still buffered goes nowhere
    sys.exit(status)


def _raise_descriptor_limit() -> None:
    """Each open shard keeps a descriptor: the usual soft limit is for 1,024 in all."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _told(error: click.ClickException | TouchfsError | OSError) -> tuple[str, int]:
    """The line and the exit status of an error."""
    match error:
        case click.UsageError(ctx=click.Context(command_path=path)):
            return f"{path}: {error.format_message()} Try `{path} --help`.", error.exit_code
        case click.ClickException():
            return f"touchfs: {error.format_message()}", error.exit_code
        case OSError():
            # Of the files of a dataset ours would have come: this is one that a command reads or writes by itself.
            where = "" if error.filename is None else f"{os.fsdecode(error.filename)}: "
            return f"touchfs: {where}{error.strerror or error}", 1
        case MountError():
            return f"touchfs: {error}", error.exit_status
        case _:
            return f"touchfs: {error}", 2 if isinstance(error, UsageError) else 1
