"""touchfs index"""

from __future__ import annotations

import click

from touchfs.cli.console import source_options
from touchfs.cli.info import troubles
from touchfs.cli.terminal import CPUS, executor, progress_bar, say
from touchfs.indexing import open_dataset


@click.command("index")
@click.argument("sources", metavar="SOURCE…", nargs=-1, required=True, type=click.Path())
@click.option("--jobs", type=click.IntRange(1), default=CPUS, show_default=True, help="Processes to use.")
@click.option("--force", is_flag=True, help="Index again what is indexed already.")
@source_options
def command(sources: tuple[str, ...], jobs: int, force: bool, sample_rate: int | None, in_place: bool) -> None:
    """Index datasets, so that mounting them takes no time. What is indexed and has not changed is left as it is.

    \b
    Example:
      touchfs index --jobs 8 shards/data.list
    """
    for source in sources:
        indexed = 0
        with executor(jobs) as pool, progress_bar(f"indexing {source}") as draw:

            def progress(done: int, total: int) -> None:
                nonlocal indexed
                indexed = total
                draw(done, total)

            dataset = open_dataset(
                source, sample_rate=sample_rate, in_place=in_place, force=force, executor=pool, progress=progress
            )
        news = f"{indexed} indexed now" if indexed else "indexed already"
        say(f"{source}: {dataset}; {news}")
        for line in troubles(source, dataset):
            click.echo(f"{source}: {line}", err=True)
