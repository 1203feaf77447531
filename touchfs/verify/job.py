"""Verify or checksum all shards of a dataset, in as many processes as an executor has."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor

from touchfs import jobs
from touchfs.dataset import Dataset
from touchfs.progress import Progress
from touchfs.shard.options import Options
from touchfs.verify.checksums import load_checksums
from touchfs.verify.journal import Journal
from touchfs.verify.shard import ShardVerdict, VerifyTask, checksum_shard, verify_shard


def verify(
    dataset: Dataset, options: Options, journal: Journal, executor: Executor | None, progress: Progress
) -> Iterator[ShardVerdict]:
    """The verdict of each shard in order: from the journal, or verified now. `progress` counts bytes of shards."""
    known = journal.verdicts()
    left = [shard for shard in dataset.shards if shard.identity not in known]
    tasks = [(VerifyTask(shard, options), shard.size) for shard in left]
    new = jobs.run_sized(verify_shard, tasks, executor, done=journal.add, progress=progress)
    for shard in dataset.shards:
        verdict = known.get(shard.identity) or next(new)
        verdict.name = shard.name
        yield verdict
    journal.remove()


def checksum(
    dataset: Dataset, options: Options, executor: Executor | None, progress: Progress, *, force: bool
) -> Iterator[ShardVerdict]:
    """Write the checksums of all shards that have none, or of all with `force`. Yields the verdicts of these shards."""
    tasks = [
        (VerifyTask(shard, options), shard.size) for shard in dataset.shards if force or load_checksums(shard) is None
    ]
    yield from jobs.run_sized(checksum_shard, tasks, executor, progress=progress)


def totals(verdicts: Iterator[ShardVerdict], tell: Callable[[str], None]) -> ShardVerdict:
    """The sum of all verdicts. `tell` is called with each problem as soon as it is known."""
    total = ShardVerdict("", "")
    for verdict in verdicts:
        for problem in verdict.problems:
            tell(problem)
        if verdict.damaged > len(verdict.problems):
            tell(f"shards/{verdict.name}: and {verdict.damaged - len(verdict.problems):,} more")
        total.files += verdict.files
        total.size += verdict.size
        total.checked += verdict.checked
        total.damaged += verdict.damaged
    return total
