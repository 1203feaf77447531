"""Groups of commands: alone they show their help, and for a command that they do not have they name the nearest ones.

click does so only in some of its versions, and not for commands that are imported when they are called.
"""

from __future__ import annotations

from collections.abc import Mapping
from shlex import join
from typing import ClassVar

import click

from touchfs.cli.command import Command
from touchfs.core.errors import UsageError


class CommandGroup(click.Group):
    """A group of commands, of which some have been `renamed`: the words that an old name stands for."""

    command_class = Command
    renamed: ClassVar[Mapping[str, str]] = {}

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments. Without any, the help goes to stderr, and the exit status is 2."""
        if not args and not self.invoke_without_command and not ctx.resilient_parsing:
            click.echo(ctx.get_help(), err=True)
            ctx.exit(2)
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that the first argument names. Raises click.UsageError with the nearest ones,
        or UsageError with the new name of one that was renamed.
        """
        name, known = args[0], self.list_commands(ctx)
        if name in self.renamed and name not in known and not ctx.resilient_parsing:
            typed = " ".join(filter(None, (ctx.command_path, self.renamed[name], join(args[1:]))))
            raise UsageError(f"`{ctx.command_path} {name}` has another name now: {typed}")
        if name in known or name.startswith("-") or ctx.resilient_parsing:
            return super().resolve_command(ctx, args)
        from difflib import get_close_matches  # only a mistake needs it

        nearest = " or ".join(map(repr, get_close_matches(name, known)))
        raise click.UsageError(f"No such command {name!r}.{f' Did you mean {nearest}?' if nearest else ''}", ctx)
