"""The `touchfs` command. A subcommand is imported when it is called, so none waits for another's imports.

An error is one line: the problem and how to solve it. The exit status is 1, or 2 for wrong usage; `mount` has more.
"""

from __future__ import annotations

import importlib
import os
import pwd
import re
import resource
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

import click

from touchfs.cli.command_group import CommandGroup
from touchfs.cli.importing import imports
from touchfs.cli.queries import without_queries
from touchfs.cli.terminal import complain, discard_stdout, log_to_stderr, open_closed_streams
from touchfs.core.errors import MountError, TouchfsError, UsageError
from touchfs.core.extras import DISTRIBUTION, leave_out_pandas
from touchfs.source.remote import SESSION_VARIABLE

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

DESCRIPTORS = 1 << 16
# As click says it.
_NO_INTEGER = re.compile(r"is not a valid integer( range)?\b")
# The commands by what they are for, each with the first sentence of its help: `touchfs --help` imports none of them.
SECTIONS = {
    "Look": {
        "info": "Print the size of a dataset and its errors.",
        "ls": "List a directory of a dataset, without mounting it.",
        "cat": "Write files of a dataset to stdout, without mounting it.",
        "show": "Draw a dataset, a sample or a file in the terminal.",
        "cp": "Copy files out of a dataset, without mounting it.",
        "stat": "Print the size, the key and the position of a file.",
    },
    "Mount": {
        "mount": "Mount a dataset as a directory of ordinary files.",
        "umount": "Unmount datasets.",
        "reload": "Reload the dataset of a mount.",
        "status": "List mounts, whether they answer, and their counters.",
        "doctor": "Check this machine, and say what to do.",
    },
    "Train": {
        "iterate": "Write samples, in order or shuffled, and save the state.",
        "iterator": "Create, step, save and restore named iterators.",
        "manifest": "Write lists of a dataset for other tools.",
    },
    "Make": {
        "demo": "Write small datasets to try touchfs with.",
        "pack": "Make shards from files.",
        "convert": "Write a dataset as shards of another kind.",
        "interleave": "Filter and convert interleaved samples.",
        "meta": "Extract and replace annotations of TouchNet shards.",
    },
    "Keep": {
        "index": "Index datasets, so that mounting them takes no time.",
        "prefetch": "Download remote datasets into the local cache.",
        "verify": "Check a dataset for damage, or write its checksums.",
        "image": "Write an image by which Linux itself shows the files.",
        "storage": "List and remove indexes, states and logs.",
    },
    "Serve and set up": {
        "serve": "Serve a dataset over HTTP and WebDAV, read-only.",
        "setup": "Set up completion, manual pages and mount(8).",
    },
}
# What commands are called that had other names.
_RENAMED = {
    "stats": "status --stats",
    "checksum": "verify --write",
    "completion": "setup completion",
    "man": "setup man",
    "install-helper": "setup helper",
}
COMMANDS = {name: summary for section in SECTIONS.values() for name, summary in section.items()}


class _Commands(CommandGroup):
    renamed: ClassVar[Mapping[str, str]] = _RENAMED

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, _mount_call(args) or args)

    def list_commands(self, context: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        with imports():
            command: click.Command = importlib.import_module(f"touchfs.cli.{name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, COMMANDS))
        for section, names in SECTIONS.items():
            with formatter.section(section):
                short = {name: _listed(name).get_short_help_str(formatter.width - 6 - width) for name in names}
                formatter.write_dl([(name.ljust(width), summary) for name, summary in short.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem  # only a shell that completes needs it

        names = [name for name in COMMANDS if name.startswith(incomplete)]
        commands = [CompletionItem(name, help=_listed(name).get_short_help_str()) for name in names]
        return commands + click.Command.shell_complete(self, ctx, incomplete)


def _listed(name: str) -> click.Command:
    """A command as lists show it: click shortens its summary to the width that there is."""
    return click.Command(name, help=COMMANDS[name])


@click.command(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]}, invoke_without_command=True)
@click.version_option(package_name=DISTRIBUTION)
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.pass_context
def group(context: click.Context, debug: bool) -> None:
    """Look into dataset shards as if they were folders.

    A shard is a large file with many samples: a tar for WebDataset, a Parquet file, a list of recordings and others.
    touchfs shows each sample as ordinary files, in a mount or without one. The shards stay as they are.

    DATASET is a shard, a directory of shards, a pattern in quotes, or a URL of these; several are one dataset.
    DATASET:PATH is a file or directory in it, as `touchfs ls` shows them.

    \b
    Example:
      touchfs demo demo
      touchfs ls demo/webdataset:shards/train-000000
      touchfs mount demo/webdataset mnt
      ls mnt/shards/train-000000
      touchfs umount mnt
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


def main() -> None:
    """The entry point: run the command, and turn an error into a line on stderr and an exit status."""
    _speak_utf8()
    open_closed_streams()
    _raise_descriptor_limit()
    _find_home()
    os.environ[SESSION_VARIABLE] = os.urandom(16).hex()
    log_to_stderr()
    leave_out_pandas()
    status = 0
    try:
        _hide_queries()
        # In standalone mode click would exit by itself and print tracebacks of our errors.
        program, name = _program()
        returned = program.main(prog_name=name, standalone_mode=False)
        status = returned if isinstance(returned, int) else 0
        sys.stdout.flush()
    except click.exceptions.Abort:
        status = 130
    except BrokenPipeError:
        status = 1  # no message, as in click: the reader closed the pipe because it has seen enough
    except (click.ClickException, TouchfsError, OSError) as error:
        if "--debug" in sys.argv[1:2]:
            raise
        line, status = _describe(error)
        complain(line)
    try:
        sys.stdout.flush()
    except OSError:
        discard_stdout()  # Python flushes the rest of the buffer at exit
    sys.exit(status)


def _speak_utf8() -> None:
    """Names, JSON and what we print are UTF-8, in any locale; other bytes pass through. Python decides at its start."""
    if sys.getfilesystemencoding() != "utf-8":
        os.environ["PYTHONUTF8"] = "1"  # for the processes that we start
        # Not sys.orig_argv: not all bytes survive each encoding.
        with open("/proc/self/cmdline", "rb") as line:
            python, *arguments = line.read().split(b"\0")[:-1]
        os.execv(sys.executable, [python, b"-X", b"utf8", *arguments])


def _program() -> tuple[click.Command, str]:
    """The command to run, and its name: mount(8) runs us by the name of its helper."""
    name = os.path.basename(sys.argv[0])
    if name != "mount.touchfs":
        return group, "touchfs"
    helper: click.Command = importlib.import_module("touchfs.cli.mount_helper").command
    return helper, name


def _hide_queries() -> None:
    """Start again without the queries of URLs: they may be signatures, and everybody sees a process's arguments."""
    arguments = without_queries(sys.orig_argv)
    if arguments != sys.orig_argv:
        os.execv(sys.executable, arguments)


def _mount_call(arguments: list[str]) -> list[str] | None:
    """The arguments of `touchfs mount` for `DATASET MOUNTPOINT -o OPTIONS`, as mount.fuse3(8) runs us; else None.

    A DATASET with the name of a command is that command: it is written `./mount`.
    """
    match arguments:
        case [dataset, mountpoint, "-o", options] if dataset not in COMMANDS and not dataset.startswith("-"):
            return ["mount", "-o", options, "--", dataset, mountpoint]
    return None


def _find_home() -> None:
    """Set HOME if it is empty, as under mount(8), so that `~` is not the root directory or a directory called `~`.

    A user without an entry in passwd(5) gets a home that cannot be written: then indexes are kept in memory, and the
    error about the state names the option for another place.
    """
    if not os.environ.get("HOME"):
        try:
            os.environ["HOME"] = pwd.getpwuid(os.getuid()).pw_dir
        except KeyError:
            os.environ["HOME"] = "/nonexistent"


def _raise_descriptor_limit() -> None:
    """Each open shard needs a descriptor, and the usual soft limit of a process is 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < limit:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))


def _describe(error: click.ClickException | TouchfsError | OSError) -> tuple[str, int]:
    match error:
        case click.UsageError(ctx=click.Context(command_path=path)):
            message = error.format_message().replace("\n\t", " ")  # click lists choices on lines of their own
            message = _NO_INTEGER.sub("is not a whole number", message)
            end = "" if message.endswith("?") else "."
            return f"{path}: {message.rstrip('.')}{end} Try `{path} --help`.", error.exit_code
        case click.ClickException():
            return f"touchfs: {error.format_message()}", error.exit_code
        case OSError():
            # The library maps errors of a dataset's files. This file is one that the command itself reads or writes.
            where = "" if error.filename is None else f"{os.fsdecode(error.filename)}: "
            return f"touchfs: {where}{error.strerror or error}", 1
        case MountError():
            return f"touchfs: {error}", error.exit_status
        case _:
            return f"touchfs: {error}", 2 if isinstance(error, UsageError) else 1
