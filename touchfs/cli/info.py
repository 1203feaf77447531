"""touchfs info"""

from __future__ import annotations

import json
from collections.abc import Iterator
from shlex import quote

import click

from touchfs.cli.console import Reading, open_source, source_options
from touchfs.cli.terminal import printable, say
from touchfs.dataset import Dataset

ERRORS_SHOWN = 10


@click.command("info")
@click.argument("source", type=click.Path())
@click.option("--json", "as_json", is_flag=True, help="For programs.")
@source_options
def command(source: str, as_json: bool, reading: Reading) -> None:
    """Tell how much a dataset holds, and what is wrong with it.

    \b
    Example:
      touchfs info shards/
    """
    dataset = open_source(source, reading)
    told = dataset.facts()
    if as_json:
        say(json.dumps(told))
        return
    damaged, broken = told["damaged_samples"], sum(bool(shard.report) for shard in dataset.shards)
    lines = {
        "kind": told["kind"],
        "shards": f"{len(dataset.shards):,}" + (f", {broken:,} with errors" if broken else ""),
        "samples": f"{dataset.samples:,}" + (f", {damaged:,} damaged" if damaged else ""),
        "hours": f"{dataset.seconds / 3600:,.2f} ({dataset.seconds:,.1f} s)",
        "data": f"{dataset.size:,} bytes",
        "keys": printable(str(told["by_key"])) if isinstance(dataset.keys, str) else f"{len(dataset.keys):,}",
        "index overhead": f"{100 * dataset.overhead:.2f} %",
    }
    for name, value in lines.items():
        say(f"{name + ':':<15} {value}")
    for line in troubles(source, dataset):
        say(line)


def troubles(source: str, dataset: Dataset) -> Iterator[str]:
    """A line for each shard with errors, for the first of many, and how to learn more."""
    broken = [shard for shard in dataset.shards if shard.report]
    for shard in broken[:ERRORS_SHOWN]:
        # The report of a shard that cannot be served names the reason in its second paragraph.
        lines = shard.report.split("\n\n")[1].splitlines()
        reason = lines[0].replace(shard.path + "/", "").replace(shard.path + ": ", "")
        reason += f"; and {len(lines) - 1:,} more" if len(lines) > 1 else ""
        damaged = f"{shard.damaged:,} of {shard.samples:,} samples are damaged"
        yield f"shard {shard.name}: {damaged if shard.damaged else printable(reason)}"
    if len(broken) > ERRORS_SHOWN:
        yield f"and {len(broken) - ERRORS_SHOWN:,} more shards"
    if broken:
        report = quote(f"{source}:shards/{broken[0].name}/ERROR.txt")
        yield f"See `touchfs cat {report}`."
