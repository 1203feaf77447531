"""Interleaving: a pipeline writes one shard for each partition of its reader, in an output of its own.

Shards appear when they are complete, and the same call makes those that are missing (`bulk/unfinished.py`). Partitions
are independent, so each is a task for an executor.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from itertools import starmap
from pathlib import Path
from typing import Any, NamedTuple

from touchfs.bulk import unfinished
from touchfs.bulk.data_list import check_output
from touchfs.core import jobs
from touchfs.core.errors import SourceError, UsageError
from touchfs.core.progress import Progress
from touchfs.core.task_paths import path_there
from touchfs.interleaved.items.pipeline import FilePartition, ItemWriter, Pipeline, WrittenFile
from touchfs.source.data import DATA


class ShardPartition(NamedTuple):
    """A partition, and its number among all, after which its shard is named."""

    number: int
    partition: FilePartition

    @property
    def stem(self) -> str:
        """The name of the shard without its suffix."""
        return f"{self.number:06d}"


@dataclass(frozen=True, slots=True)
class InterleaveReport:
    """The number of shards in the output, and of those that this run wrote; their samples, rows, and rows that are
    frames of TIFFs that could not be copied, and were encoded again without loss. `itemless` are the source files in
    which nothing interleaved was found: a shard of such files alone is not written.
    """

    shards: int
    written: int
    samples: int
    rows: int
    reencoded_frames: int
    itemless: tuple[str, ...] = ()


class _Written(NamedTuple):
    """The file of a partition, None if its files are all `itemless`."""

    file: WrittenFile | None
    itemless: list[str]


def interleave(
    pipeline: Pipeline,
    output: str,
    *,
    executor: Executor | None = None,
    progress: Progress = lambda done, total: None,
) -> InterleaveReport:
    """Write the shards of a pipeline whose writer writes into the directory `output`.

    The result does not depend on the executor. `progress` is called with the bytes of the source files that are done,
    and their total. Raises UsageError if the output holds anything but an unfinished job with the same stages,
    ChangedError if the source files changed since that was begun, and the errors of the stages.
    """
    check_output(output)
    if pipeline.writer is None:
        raise UsageError("this pipeline has no writer: end it with `| writer`")
    partitions = pipeline.reader.partitions()
    try:
        with unfinished.open_plan(Path(output), _settings(pipeline, pipeline.writer, partitions, output)):
            written = _write_missing(pipeline, pipeline.writer, partitions, Path(output), executor, progress)
    except OSError as error:
        raise SourceError(f"cannot be written: {error.strerror}", path=output) from error
    files = [shard.file for shard in written if shard.file is not None]
    return InterleaveReport(
        len(partitions) - (len(written) - len(files)),
        len(files),
        sum(file.samples for file in files),
        sum(file.rows for file in files),
        sum(file.reencoded_frames for file in files),
        tuple(path for shard in written for path in shard.itemless),
    )


def _settings(
    pipeline: Pipeline, writer: ItemWriter, partitions: Sequence[FilePartition], output: str
) -> dict[str, Any]:
    """Everything that determines the shards, and so must be equal to resume."""
    files = [path for partition in partitions for path in partition.files]
    digest = hashlib.sha256(repr([partition.size for partition in partitions]).encode())
    for path in files:
        digest.update(f"{path}\0{DATA.stat(path).fingerprint.hashed}\n".encode(errors="surrogateescape"))
    return {
        "kind": "interleave",
        "output": output,
        "source": files[0] + (f" or one of {len(files) - 1} more" if files[1:] else "") if files else "",
        "reader": pipeline.reader.describe(),
        "filters": [repr(stage) for stage in pipeline.filters],
        "writer": writer.describe(),
        "sha256": digest.hexdigest(),
    }


def _write_missing(
    pipeline: Pipeline,
    writer: ItemWriter,
    partitions: Sequence[FilePartition],
    output: Path,
    executor: Executor | None,
    progress: Progress,
) -> list[_Written]:
    tasks = [(task, task.partition.size) for task in starmap(ShardPartition, enumerate(partitions))]
    missing = [task for task in tasks if not os.path.exists(output / (task[0].stem + writer.suffix))]
    total = sum(size for _, size in tasks)
    before = total - sum(size for _, size in missing)

    def report(done: int, _: int) -> None:
        progress(before + done, total)

    write = partial(_write, Path(path_there(executor, str(output))), pipeline, writer)
    return list(jobs.run_sized(write, missing, executor, progress=report))


def _write(output: Path, pipeline: Pipeline, writer: ItemWriter, task: ShardPartition) -> _Written:
    itemless = pipeline.reader.itemless(task.partition)
    if itemless and len(itemless) == len(task.partition.files):
        return _Written(None, itemless)
    with unfinished.join_plan(output):
        return _Written(pipeline.write(task.partition, writer.named(task.stem)), itemless)
