"""touchfs prefetch"""

from __future__ import annotations

import click

from touchfs.cli.console import PATH, ReadOptions, dataset_options, open_indexed
from touchfs.cli.progress import progress_bar
from touchfs.cli.remote_options import parse_rate
from touchfs.cli.terminal import say
from touchfs.dataset import counted
from touchfs.source.pace import Pace


@click.command("prefetch")
@click.argument("paths", metavar="DATASET…", nargs=-1, required=True, type=PATH)
@click.option("--rate", metavar="SIZE", help="Fetch at most this much a second, for example 50M.")
@dataset_options
def command(paths: tuple[str, ...], rate: str | None, read_options: ReadOptions) -> None:
    """Fetch datasets of other stores to this machine.

    Reading what is here needs no network.

    What is fetched is in --scratch-dir, up to --scratch-size. If you stop it, the next call goes on where this one was.

    \b
    Example:
      touchfs prefetch --rate 100M s3://bucket/speech
    """
    pace = None if rate is None else Pace(parse_rate(rate))
    for path in paths:
        dataset, done = open_indexed(path, read_options), 0
        total = sum(fingerprint.size for shard in dataset.shards for fingerprint in shard.files.values())
        with progress_bar(f"fetching {path}") as progress:
            for shard in dataset.shards:
                for name in shard.files:
                    for count in shard.source(name).fetch(pace):
                        done += count
                        progress(done, total)
        say(f"{path}: {counted(len(dataset.shards), 'shard')}, {done:,} bytes are on this machine")
