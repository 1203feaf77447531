"""touchfs info"""

from __future__ import annotations

import json

import click
from rich.console import Console
from rich.table import Table

from touchfs.cli.console import open_source, source_options
from touchfs.dataset import Dataset


@click.command("info")
@click.argument("source", type=click.Path())
@click.option("--json", "as_json", is_flag=True, help="For programs.")
@source_options
def command(source: str, as_json: bool, sample_rate: int | None, in_place: bool) -> None:
    """Tell what a dataset is: kind, shards, samples, hours, and the overhead of its indexes.

    \b
    Example:
      touchfs info shards/
    """
    told = facts(open_source(source, sample_rate=sample_rate, in_place=in_place))
    if as_json:
        click.echo(json.dumps(told, ensure_ascii=False))
        return
    table = Table(show_header=False, box=None)
    for name, value in told.items():
        shown = ", ".join(value) if isinstance(value, list) else f"{value:,}" if isinstance(value, int) else str(value)
        table.add_row(name.replace("_", " "), shown)
    Console().print(table)


def facts(dataset: Dataset) -> dict[str, object]:
    """What `info` tells, by name."""
    return {
        "kind": "TouchDataset (.bin/.idx)",
        "shards": len(dataset.shards),
        "samples": dataset.samples,
        "hours": round(dataset.seconds / 3600, 4),
        "bytes": dataset.size,
        "index_overhead_percent": round(100 * dataset.overhead, 3),
        "damaged_samples": sum(shard.damaged for shard in dataset.shards),
        "shards_with_errors": [shard.name for shard in dataset.shards if shard.report],
    }
