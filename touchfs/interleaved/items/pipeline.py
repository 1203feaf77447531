"""Pipelines over interleaved samples: `reader | filter | writer`.

A reader divides its files into partitions, and reads each of them as batches. A filter is any function from a batch to
a batch. A writer makes one file of each partition. So partitions are independent tasks, for any executor.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeAlias, cast

from touchfs.core import jobs
from touchfs.core.errors import UsageError
from touchfs.core.progress import Progress
from touchfs.interleaved.items.batch import InterleavedBatch

BatchFilter: TypeAlias = Callable[[InterleavedBatch], InterleavedBatch]


class FilePartition(Protocol):
    """The files that become one task, and one file of a writer."""

    @property
    def files(self) -> tuple[str, ...]:
        """The paths of the files."""
        ...

    @property
    def size(self) -> int:
        """The total size of the files in bytes, as far as it is known."""
        ...


class ItemReader(ABC):
    """A reader of interleaved samples. `reader | filter | writer` is a `Pipeline`."""

    @abstractmethod
    def partitions(self) -> Sequence[Any]:
        """Return the partitions (`FilePartition`), in order."""

    @abstractmethod
    def batches(self, partition: Any) -> Iterator[InterleavedBatch]:
        """Yield the batches of a partition. A sample is in one batch."""

    @abstractmethod
    def describe(self) -> Any:
        """Return the parameters as JSON."""

    def itemless(self, partition: Any) -> list[str]:
        """Return the files of a partition that have something in them, and no text and no image of a sample."""
        return []

    def __iter__(self) -> Iterator[InterleavedBatch]:
        for partition in self.partitions():
            yield from self.batches(partition)

    def __or__(self, stage: BatchFilter | ItemWriter) -> Pipeline:
        return Pipeline(self) | stage


class WrittenFile(NamedTuple):
    """A file that a pipeline wrote, and the numbers of its samples and rows.

    `reencoded_frames` of the rows are frames of TIFFs that could not be copied, and were encoded again without loss.
    """

    path: str
    samples: int
    rows: int
    reencoded_frames: int


class OpenedItemFile(Protocol):
    """A file that is being written: where it will appear, and what it has so far."""

    path: str
    samples: int
    rows: int
    reencoded_frames: int

    def append(self, batch: InterleavedBatch) -> None:
        """Write the rows of a batch."""
        ...


class ItemWriter(Protocol):
    """A writer of interleaved samples. A file appears when its block ends without an exception."""

    @property
    def suffix(self) -> str:
        """The end of all names."""
        ...

    def writing(self, source_files: Collection[str]) -> AbstractContextManager[OpenedItemFile]:
        """Open a file that is named after the files that its rows are from."""
        ...

    def named(self, stem: str) -> AbstractContextManager[OpenedItemFile]:
        """Open a file of this name, without the suffix."""
        ...

    def describe(self) -> Any:
        """Return the parameters as JSON."""
        ...


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A reader, filters in their order, and perhaps a writer. Iterating yields the filtered batches."""

    reader: ItemReader
    filters: tuple[BatchFilter, ...] = ()
    writer: ItemWriter | None = None

    def __or__(self, stage: BatchFilter | ItemWriter) -> Pipeline:
        """Return the pipeline with one more stage. Raises UsageError behind a writer, or for anything else."""
        if self.writer is not None:
            raise UsageError("a writer is the last stage of a pipeline: put filters before it")
        if hasattr(stage, "writing"):
            return replace(self, writer=cast(ItemWriter, stage))
        if callable(stage):
            return replace(self, filters=(*self.filters, stage))
        raise UsageError(f"a stage is a function from batch to batch, or a writer, not {type(stage).__name__}")

    def batches(self, partition: Any) -> Iterator[InterleavedBatch]:
        """Yield the filtered batches of a partition."""
        for batch in self.reader.batches(partition):
            for stage in self.filters:
                batch = stage(batch)
            yield batch

    def __iter__(self) -> Iterator[InterleavedBatch]:
        for partition in self.reader.partitions():
            yield from self.batches(partition)

    def run(self, executor: Executor | None = None, progress: Progress = lambda done, total: None) -> list[WrittenFile]:
        """Write all partitions, and return their files in order. The result does not depend on the executor.

        `progress` is called with the bytes of the partitions that are done, and their total. Raises UsageError without
        a writer, and the errors of the stages.
        """
        if self.writer is None:
            raise UsageError("this pipeline has no writer: end it with `| writer`")
        tasks = [(partition, partition.size) for partition in self.reader.partitions()]
        return list(jobs.run_sized(partial(_run_partition, self, self.writer), tasks, executor, progress=progress))

    def write(self, partition: Any, opened: AbstractContextManager[OpenedItemFile]) -> WrittenFile:
        """Write the filtered batches of a partition into a file of the writer."""
        with opened as file:
            for batch in self.batches(partition):
                file.append(batch)
        return WrittenFile(file.path, file.samples, file.rows, file.reencoded_frames)


def _run_partition(pipeline: Pipeline, writer: ItemWriter, partition: FilePartition) -> WrittenFile:
    return pipeline.write(partition, writer.writing(partition.files))
