"""Run tasks about shards. Work at a small shard of another store is some requests, one after the other, and little
else. So a process works at several of them at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import TypeVar

from touchfs.core import jobs
from touchfs.core.location import Location
from touchfs.core.progress import Progress
from touchfs.posix.threads import run_at_once
from touchfs.source.remote.storage_options import StorageOptions

Task = TypeVar("Task")
T = TypeVar("T")

# Bytes of such a shard. A process holds as many at once as it may have requests, which is 32 MiB by default.
_SIZE_MAX = 1 << 21


def run_shards(
    function: Callable[[Task], T], tasks: Sequence[tuple[Task, str, int]], executor: Executor | None, progress: Progress
) -> Iterator[T]:
    """Like `jobs.run_sized`, for tasks about a shard each: the task, the path of the shard and its size in bytes.

    Small shards of other stores come first.
    """
    far, near = list[tuple[Task, int]](), list[tuple[Task, int]]()
    for task, path, size in tasks:
        (far if size <= _SIZE_MAX and Location.of(path).is_url else near).append((task, size))
    count = StorageOptions.configured().requests
    batches = [far[start : start + count] for start in range(0, len(far), count)]
    sized = [([task for task, _ in batch], sum(size for _, size in batch)) for batch in batches]
    for results in jobs.run_sized(partial(_at_once, function), sized, executor, progress=progress):
        yield from results
    yield from jobs.run_sized(function, near, executor, progress=progress)


def _at_once(function: Callable[[Task], T], tasks: Sequence[Task]) -> list[T]:
    return run_at_once(function, tasks, len(tasks))
