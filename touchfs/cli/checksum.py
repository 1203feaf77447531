"""touchfs checksum"""

from __future__ import annotations

import click

from touchfs.cli.dataset_argument import PATH, open_indexed
from touchfs.cli.dataset_options import ReadOptions, dataset_options
from touchfs.cli.progress import progress_bar
from touchfs.cli.terminal import complain, say
from touchfs.cli.workers import Workers, executor, workers_option
from touchfs.core.location import Location
from touchfs.dataset import counted
from touchfs.indexing.place import index_place
from touchfs.verify.job import checksum, totals


@click.command("checksum")
@click.argument("path", metavar="DATASET", type=PATH)
@workers_option()
@click.option("--force", is_flag=True, help="Write all checksums again, also of shards that have some.")
@dataset_options
def command(path: str, workers: Workers, force: bool, read_options: ReadOptions) -> int:
    """Write checksums of a dataset into its index.

    Each file gets a CRC32C. `touchfs verify` and `touchfs mount --verify` compare it with what they read. A shard with
    a file that cannot be read gets none; its problems are printed, and the exit status is 1.

    \b
    Example:
      touchfs checksum shards/
    """
    dataset = open_indexed(path, read_options, must_keep=True)
    place = index_place(Location.of(path), in_place=read_options.in_place)
    with executor(workers.at_most(len(dataset.shards)), [path], [place]) as pool, progress_bar("reading") as progress:
        verdicts = checksum(dataset, read_options.options, pool, progress, force=force)
        total = totals(verdicts, lambda line: complain(f"touchfs: {line}"))
    say(f"{counted(total.checked, 'checksum')} written, {total.size:,} bytes read")
    return 1 if total.damaged else 0
