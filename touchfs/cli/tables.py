"""Options of the commands that write tables, and the line that they print."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import click

from touchfs.bulk.tables.job import TableReport
from touchfs.bulk.tables.writers import TableSettings
from touchfs.cli.terminal import say
from touchfs.dataset import counted

_OPTIONS = (
    click.option(
        "--payload",
        type=click.Choice(["uncompressed"]),
        help="arrow: leave columns of files uncompressed, so that a mount need not decode them.",
    ),
    click.option("--compression", type=click.Choice(["zstd", "lz4"]), help="arrow, parquet: compress the columns."),
    click.option(
        "--batch-size",
        type=click.IntRange(1),
        help="arrow, lance, parquet: rows per batch, or row group. [default: the table's, else 1000]",
    ),
)


def storage_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Options about the storage of tables but `--shard-size`, each None by default."""
    for option in _OPTIONS:
        function = option(function)
    return function


def settings_of(kind: str, options: dict[str, Any]) -> TableSettings:
    """The settings for a kind of table from the options. Raises UsageError for one that the kind does not have."""
    return TableSettings(kind, **{name: value for name, value in options.items() if value is not None})


def print_report(output: str, report: TableReport) -> None:
    """Print what was written."""
    skipped = f", {report.skipped} skipped: see {os.path.join(output, 'skipped.jsonl')}" if report.skipped else ""
    say(f"{output}: {counted(report.rows, 'row')}{skipped}")
