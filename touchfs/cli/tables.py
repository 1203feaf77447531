"""Options of the commands that write tables, and the line that they print."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import click

from touchfs.bulk.tables.job import TableReport
from touchfs.bulk.tables.writers import ARROW, LANCE, PARQUET, TableSettings
from touchfs.cli.terminal import say
from touchfs.dataset import counted

KINDS = (ARROW, LANCE, PARQUET)


def storage_options(*kinds: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Options about the storage of these kinds of tables but `--shard-size`, each None by default."""

    def option(name: str, known: Sequence[str], help_text: str, **settings: Any) -> Callable[..., Any]:
        having = [kind for kind in kinds if kind in known]
        if not having:
            return lambda function: function
        text = f"{', '.join(having)}: {help_text}" if len(kinds) > 1 else help_text[0].upper() + help_text[1:]
        return click.option(name, help=text, **settings)

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        uncompressed = "leave columns of files uncompressed, so that a mount need not decode them."
        rows = "rows per batch, or row group. [default: the table's, else 1000]"
        for add in (
            option("--payload", (ARROW,), uncompressed, type=click.Choice(["uncompressed"])),
            option("--compression", (ARROW, PARQUET), "compress the columns.", type=click.Choice(["zstd", "lz4"])),
            option("--batch-size", KINDS, rows, type=click.IntRange(1)),
        ):
            function = add(function)
        return function

    return decorate


def settings_of(kind: str, options: dict[str, Any]) -> TableSettings:
    """The settings for a kind of table from the options. Raises UsageError for one that the kind does not have."""
    return TableSettings(kind, **{name: value for name, value in options.items() if value is not None})


def print_report(output: str, report: TableReport) -> None:
    """Print what was written."""
    skipped = f", {report.skipped} skipped: see {os.path.join(output, 'skipped.jsonl')}" if report.skipped else ""
    say(f"{output}: {counted(report.rows, 'row')}{skipped}")
