"""Verify or checksum all shards of a dataset, in as many processes as an executor has."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from dataclasses import replace

from touchfs.core import jobs
from touchfs.core.errors import TouchfsError
from touchfs.core.progress import Progress
from touchfs.dataset import Dataset
from touchfs.dataset.shard import Shard
from touchfs.shard.options import Options
from touchfs.verify.checksums import load_checksums
from touchfs.verify.journal import Journal
from touchfs.verify.shard import ShardVerdict, VerifyTask, checksum_shard, subject_of, verify_shard


def verify(
    dataset: Dataset, options: Options, journal: Journal, executor: Executor | None, progress: Progress
) -> Iterator[ShardVerdict]:
    """The verdict of each shard in order, from now or from the journal. `progress` counts bytes of shards."""
    known = journal.verdicts()
    subjects = {shard.path: subject_of(shard) for shard in dataset.shards}
    left = [shard for shard in dataset.shards if subjects[shard.path] not in known]
    tasks = [(VerifyTask(shard, options), shard.size) for shard in left]
    new = jobs.run_sized(verify_shard, tasks, executor, done=journal.add, progress=progress)
    for shard in dataset.shards:
        before = known.get(subjects[shard.path])
        yield next(new) if before is None else replace(before, name=shard.directory + shard.name, before=1)
    journal.remove()


def checksum(
    dataset: Dataset, options: Options, executor: Executor | None, progress: Progress, *, force: bool
) -> Iterator[ShardVerdict]:
    """Write the checksums of all shards that have none, or of all with `force`. Yields the verdicts of these shards."""
    tasks = [
        (VerifyTask(shard, options), shard.size) for shard in dataset.shards if force or not _has_good_checksums(shard)
    ]
    yield from jobs.run_sized(checksum_shard, tasks, executor, progress=progress)


def _has_good_checksums(shard: Shard) -> bool:
    try:
        return load_checksums(shard) is not None
    except TouchfsError:
        return False


def totals(verdicts: Iterator[ShardVerdict], tell: Callable[[str], None]) -> ShardVerdict:
    """The sum of all verdicts. `tell` is called with each problem as soon as it is known."""
    total = ShardVerdict("", "")
    for verdict in verdicts:
        for problem in verdict.problems:
            tell(problem)
        if verdict.damaged > len(verdict.problems):
            tell(f"shards/{verdict.name}: and {verdict.damaged - len(verdict.problems):,} more")
        total.files += verdict.files
        total.size += 0 if verdict.before else verdict.size
        total.before += verdict.before
        total.checked += verdict.checked
        total.damaged += verdict.damaged
    return total
