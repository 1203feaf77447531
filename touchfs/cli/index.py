"""touchfs index"""

from __future__ import annotations

import os

import click

from touchfs.cli.console import executor, progress_bar, source_options
from touchfs.dataset import open_dataset


@click.command("index")
@click.argument("sources", metavar="PATH…", nargs=-1, required=True, type=click.Path())
@click.option("--jobs", type=click.IntRange(1), default=os.cpu_count() or 1, show_default=True, help="Processes to use.")
@click.option("--force", is_flag=True, help="Index again what is indexed already.")
@source_options
def command(sources: tuple[str, ...], jobs: int, force: bool, sample_rate: int | None, in_place: bool) -> None:
    """Index datasets, so that mounting them takes no time. What is indexed and has not changed is left as it is.

    \b
    Example:
      touchfs index --jobs 8 /data/speech/data.list
    """
    for source in sources:
        with executor(jobs) as pool, progress_bar(f"indexing {source}") as progress:
            dataset = open_dataset(
                source, sample_rate=sample_rate, in_place=in_place, force=force, executor=pool, progress=progress
            )
        click.echo(f"{source}: {len(dataset.shards)} shards, {dataset.samples} samples")
        for shard in dataset.shards:
            if shard.report:
                click.echo(f"{source}: shard {shard.name}: {shard.report.splitlines()[0]} See its ERROR.txt.", err=True)
