"""touchfs verify"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

import click

from touchfs.cli.command import Command
from touchfs.cli.dataset_argument import datasets_argument, open_indexed
from touchfs.cli.dataset_options import ReadOptions, dataset_options
from touchfs.cli.progress import progress_bar
from touchfs.cli.terminal import say
from touchfs.cli.workers import Workers, executor, workers_option
from touchfs.core.errors import UsageError
from touchfs.core.location import Location
from touchfs.dataset import counted
from touchfs.indexing.place import index_place
from touchfs.verify.indexes import verify_files, verify_keys
from touchfs.verify.job import checksum, totals, verify
from touchfs.verify.journal import Journal
from touchfs.verify.shard import ShardVerdict


@click.command("verify", cls=Command)
@datasets_argument("path", "DATASET")
@click.option("--write", is_flag=True, help="Write the checksums that are missing into the index, instead of checking.")
@click.option("--force", is_flag=True, help="With --write, write all checksums again.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object at the end instead of lines.")
@workers_option()
@dataset_options
def command(path: str, write: bool, force: bool, as_json: bool, workers: Workers, read_options: ReadOptions) -> int:
    """Check a dataset for damage, or write its checksums.

    Each shard is indexed again and compared with its index, and the index with its checksums. Each file is read, and
    compared with its checksum if there is one. If this is interrupted, the next call goes on with the shards that are
    left. With --write each file gets a CRC32C instead, which `touchfs mount --verify` compares, too. A shard with a
    file that cannot be read gets none.

    Prints a line for each problem. The exit status is 1 if there is any.

    \b
    Example:
      touchfs verify --write shards/
      touchfs verify shards/
    """
    if force and not write:
        raise UsageError("--force needs --write")
    dataset = open_indexed(path, read_options, must_keep=write)
    place = index_place(Location.of(path), in_place=read_options.in_place)
    # An index that could not be kept is in memory, and so is the journal.
    journal = Journal(os.path.dirname(dataset.shards[0].catalog) if dataset.shards else place, dataset)
    problems: list[str] = []
    written = [place] if write else []
    doing = "reading" if write else "verifying"
    with executor(workers.at_most(len(dataset.shards)), [path], written) as pool, progress_bar(doing) as progress:

        def verdicts() -> Iterator[ShardVerdict]:
            if write:
                yield from checksum(dataset, read_options.options, pool, progress, force=force)
                return
            yield from verify(dataset, read_options.options, journal, pool, progress)
            yield verify_keys(dataset, pool)
            yield verify_files(dataset)

        total = totals(verdicts(), problems.append if as_json else say)
    if as_json:
        facts = {
            "shards": len(dataset.shards),
            "files": total.files,
            "bytes": total.size,
            "shards_before": total.before,
            "files_with_checksum": total.checked,
            "damaged": total.damaged,
            "problems": problems,
        }
        say(json.dumps(facts))
    elif write:
        say(f"{counted(total.checked, 'checksum')} written, {total.size:,} bytes read")
    else:
        shards = counted(len(dataset.shards), "shard")
        before = f" ({total.before:,} of them by an earlier call)" if total.before else ""
        result = counted(total.damaged, "problem") if total.damaged else "no problem"
        say(
            f"{shards}{before}, {counted(total.files, 'file')}, {total.size:,} bytes read, "
            f"{total.checked:,} with a checksum: {result}"
        )
    return 1 if total.damaged else 0
