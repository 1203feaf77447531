"""The `touchfs` command. Commands are imported when they are called, so none waits for another's imports.

Errors are one line: what, and what to do. Exit status 1, or 2 for a wrong command; `mount` has a table of its own.
"""

from __future__ import annotations

import importlib
import os
import sys

import click

from touchfs.errors import MountError, TouchfsError, UsageError

COMMANDS = ("cat", "cp", "index", "info", "ls", "mount", "pack", "stat", "umount")


class _Commands(click.Group):
    def list_commands(self, context: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"touchfs.cli.{name}").command
        return command


@click.command(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="touchfs")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def group(debug: bool) -> None:
    """Mount indexed dataset shards as a directory of ordinary files.

    \b
    Example:
      touchfs mount shards/ /mnt/speech
      ls /mnt/speech/shards
      touchfs umount /mnt/speech
    """


def main() -> None:
    """The entry point: runs the command, and turns errors into a line and an exit status."""
    status = 0
    try:
        # In standalone mode click would exit by itself, and print tracebacks of our errors.
        returned = group.main(prog_name="touchfs", standalone_mode=False)
        status = returned if isinstance(returned, int) else 0
        sys.stdout.flush()
    except click.exceptions.Abort:
        status = 130
    except click.ClickException as error:
        error.show()
        status = error.exit_code
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what is still buffered goes nowhere
        status = 141
    except TouchfsError as error:
        if "--debug" in sys.argv[1:2]:
            raise
        click.echo(f"touchfs: {error}", err=True)
        status = error.exit_status if isinstance(error, MountError) else 2 if isinstance(error, UsageError) else 1
    sys.exit(status)
