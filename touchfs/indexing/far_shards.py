"""Small shards of other stores. Work at one takes some requests, one after the other, and little else, so a process
works at several at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import TypeVar

from touchfs import jobs
from touchfs.posix.paths import is_url
from touchfs.progress import Progress
from touchfs.source.remote.options import StorageOptions

Task = TypeVar("Task")
T = TypeVar("T")

# Bytes of such a shard. A process holds as many at once as it may have requests, which is 32 MiB by default.
_SIZE_MAX = 1 << 21


def is_far(path: str, size: int) -> bool:
    """True if a shard of this size is a small one of another store."""
    return size <= _SIZE_MAX and is_url(path)


def run_far(
    function: Callable[[Task], T], tasks: Sequence[tuple[Task, int]], executor: Executor | None, progress: Progress
) -> Iterator[T]:
    """As `jobs.run_sized`, for tasks that are each about such a shard."""
    count = StorageOptions.configured().requests
    batches = [tasks[start : start + count] for start in range(0, len(tasks), count)]
    sized = [([task for task, _ in batch], sum(size for _, size in batch)) for batch in batches]
    for results in jobs.run_sized(partial(_at_once, function), sized, executor, progress=progress):
        yield from results


def _at_once(function: Callable[[Task], T], tasks: Sequence[Task]) -> list[T]:
    return jobs.run_at_once(function, tasks, len(tasks))
