"""touchfs doctor"""

from __future__ import annotations

from dataclasses import asdict

import click

from touchfs.cli.terminal import json_option, say, say_rows


@click.command("doctor")
@click.option("--state-dir", type=click.Path(), help="As for `touchfs mount`. [default: the user's]")
@json_option
def command(state_dir: str | None, as_json: bool) -> None:
    """Check this machine, and say what to do.

    Each line is `ok`, `note` (something is limited) or `bad` (a mount fails). The exit status is 1 if a line is bad.
    Nothing is changed.

    \b
    Example:
      touchfs doctor
    """
    from touchfs_mount.mounting.doctor import Rating, check_machine

    findings = list(check_machine(state_dir))
    if as_json:
        say_rows(map(asdict, findings))
    for finding in [] if as_json else findings:
        advice = f": {finding.advice}" if finding.advice else ""
        say(f"{finding.rating:<5} {finding.subject:<20} {finding.found}{advice}")
    if any(finding.rating is Rating.BAD for finding in findings):
        raise click.exceptions.Exit(1)
