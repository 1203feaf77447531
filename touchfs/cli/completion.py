"""touchfs completion"""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

PROGRAM, VARIABLE = "touchfs", "_TOUCHFS_COMPLETE"


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(context: click.Context, shell: str) -> None:
    """Print a script that completes commands, options and paths.

    \b
    Examples:
      touchfs completion bash > touchfs.bash
      source touchfs.bash
    """
    completer = get_completion_class(shell)
    if completer is None:
        raise click.UsageError(f"this version of click does not know {shell}")
    click.echo(completer(context.find_root().command, {}, PROGRAM, VARIABLE).source())
