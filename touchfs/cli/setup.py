"""touchfs setup helper"""

from __future__ import annotations

import os
import shutil
import sys

import click
from click.shell_completion import get_completion_class

from touchfs.cli.command_group import CommandGroup
from touchfs.cli.mount_helper import HELPER
from touchfs.cli.terminal import complain, say
from touchfs.core.errors import OutputExistsError, SourceError, UnwritableError, map_os_errors
from touchfs.posix.atomic import TEMPORARY_PREFIX, atomic_file

_PROGRAM, _VARIABLE = "touchfs", "_TOUCHFS_COMPLETE"


@click.group("setup", cls=CommandGroup)
def command() -> None:
    """Set up completion, manual pages and mount(8).

    \b
    Example:
      touchfs setup completion bash > touchfs.bash
      touchfs setup man share/man
    """


@command.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print a script that completes commands, options and paths.

    \b
    Examples:
      touchfs setup completion bash > touchfs.bash
      source touchfs.bash
    """
    completer = get_completion_class(shell)
    if completer is None:
        raise click.UsageError(f"this version of click does not know {shell}")
    click.echo(completer(context.find_root().command, {}, _PROGRAM, _VARIABLE).source())


@command.command("man")
@click.argument("directory", metavar="DIR", type=click.Path())
def man(directory: str) -> None:
    """Write the manual pages of all commands.

    They are made of what `--help-all` shows, and written to DIR/man1 and DIR/man8.

    \b
    Examples:
      touchfs setup man share/man
      man -l share/man/man1/touchfs-mount.1 | head
    """
    from touchfs.cli.manual_pages import manual_pages  # this imports all commands

    count = 0
    for name, text in manual_pages():
        path = os.path.join(directory, f"man{name[-1]}", name)
        with map_os_errors(path):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with atomic_file(path) as file:
                file.write(text.encode())
        count += 1
    say(f"{directory}: {count} manual pages; `man -M {directory} touchfs` shows the first")


@command.command("helper", context_settings={"show_default": True})
@click.option("--directory", type=click.Path(), default="/sbin", help="Where mount(8) looks for helpers.")
@click.option("--remove", is_flag=True, help="Remove the link.")
def helper(directory: str, remove: bool) -> None:
    """Make `mount -t touchfs` work.

    For that type, also in /etc/fstab, mount(8) runs /sbin/mount.touchfs. This makes it a link to this program. A link
    to another touchfs is replaced; any other file stays.

    \b
    Example:
      mkdir sbin
      touchfs setup helper --directory sbin
      touchfs setup helper --directory sbin --remove
    """
    link = os.path.join(os.path.abspath(directory), HELPER)
    program = _program()
    present = _target(link)
    try:
        if remove:
            if present is not None:
                os.unlink(link)
            say(f"{link} is removed" if present is not None else f"{link} does not exist")
            return
        temporary = os.path.join(os.path.dirname(link), f"{TEMPORARY_PREFIX}{os.getpid()}")
        os.symlink(program, temporary)
        os.replace(temporary, link)
    except PermissionError as error:
        arguments = sys.argv[1:]
        raise UnwritableError(
            f"cannot be written: {error.strerror}; as root: {' '.join([program, *arguments])}", path=link
        ) from error
    except OSError as error:
        raise SourceError(f"cannot be written: {error.strerror}", path=link) from error
    say(f"{link} links to {program}: `mount -t touchfs DATASET DIRECTORY` runs it")
    if os.stat(program).st_uid != 0:
        complain(f"touchfs: root will run {program}, which is another user's file")


def _program() -> str:
    """The path of the script that runs, as it was called: a link to it, as of pipx, may outlive its target."""
    found = shutil.which(sys.argv[0])
    if found is None:
        raise SourceError("is not a program that a link can point to", path=sys.argv[0])
    return os.path.abspath(found)


def _target(link: str) -> str | None:
    """The program that the link of an earlier call points to; None if there is no file. Raises OutputExistsError."""
    if not os.path.lexists(link):
        return None
    target = os.readlink(link) if os.path.islink(link) else ""
    if os.path.basename(target) != "touchfs":
        raise OutputExistsError("is not a link to touchfs, and stays as it is", path=link)
    return target
