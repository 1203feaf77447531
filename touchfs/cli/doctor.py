"""touchfs doctor"""

from __future__ import annotations

import click

from touchfs.cli.terminal import say


@click.command("doctor")
@click.option("--state-dir", type=click.Path(), help="As for `touchfs mount`. [default: the user's]")
def command(state_dir: str | None) -> None:
    """Check this machine, and say what to do.

    Each line is `ok`, `note` (something is limited) or `bad` (a mount fails). The exit status is 1 if a line is bad.
    Nothing is changed.

    \b
    Example:
      touchfs doctor
    """
    from touchfs_mount.mounting.doctor import Rating, check_machine

    is_good = True
    for finding in check_machine(state_dir):
        advice = f": {finding.advice}" if finding.advice else ""
        say(f"{finding.rating:<5} {finding.subject:<20} {finding.found}{advice}")
        is_good &= finding.rating is not Rating.BAD
    if not is_good:
        raise click.exceptions.Exit(1)
