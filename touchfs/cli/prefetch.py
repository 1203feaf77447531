"""touchfs prefetch"""

from __future__ import annotations

import click

from touchfs.cli.command import Command
from touchfs.cli.dataset_argument import PATH, open_indexed
from touchfs.cli.dataset_options import ReadOptions, dataset_options
from touchfs.cli.progress import progress_bar
from touchfs.cli.remote_options import parse_rate
from touchfs.cli.terminal import json_option, say, say_rows
from touchfs.core.errors import TouchfsError
from touchfs.core.urls import shown
from touchfs.dataset import counted
from touchfs.source.pace import Pace
from touchfs.source.remote.prefetch import check_kept, check_room, fetch_all, remote_files


@click.command("prefetch", cls=Command)
@click.argument("paths", metavar="DATASET…", nargs=-1, required=True, type=PATH)
@click.option("--rate", metavar="SIZE", help="Fetch at most this much a second, for example 50M.")
@json_option
@dataset_options
def command(paths: tuple[str, ...], rate: str | None, as_json: bool, read_options: ReadOptions) -> None:
    """Download remote datasets into the local cache.

    Fetched data is read without the network.

    It is kept in --scratch-dir, up to --scratch-size. If you stop it, the next call goes on where this one stopped.

    \b
    Example:
      touchfs prefetch --rate 100M s3://bucket/speech
    """
    pace = None if rate is None else Pace(parse_rate(rate))
    datasets = {path: open_indexed(path, read_options) for path in paths}
    remote = {path: remote_files(dataset.sources()) for path, dataset in datasets.items()}
    everything = remote_files(file for files in remote.values() for file in files)
    check_room(everything)
    for path, files in remote.items():
        done, total = 0, sum(file.size for file in files)
        with progress_bar(f"fetching {path}") as progress:
            for _, result in fetch_all(files, pace):
                if isinstance(result, TouchfsError):
                    raise result
                done += result
                progress(done, total)
    check_kept(everything)  # what was fetched first may have been evicted since
    sizes = {path: sum(file.size for file in dataset.sources()) for path, dataset in datasets.items()}
    if as_json:
        rows = ((path, len(datasets[path].shards), size) for path, size in sizes.items())
        say_rows({"dataset": shown(path), "shards": shards, "bytes": size} for path, shards, size in rows)
        return
    for path, size in sizes.items():
        say(f"{path}: {counted(len(datasets[path].shards), 'shard')}, {size:,} bytes are on this machine")
