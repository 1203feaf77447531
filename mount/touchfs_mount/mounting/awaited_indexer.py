"""In a mount, a shard is indexed by the process that looks into it, and all of them by a program beside the mount
(`beside.indexing`). A process that needs all waits for that program.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from touchfs.core.errors import NotIndexedError
from touchfs.dataset import Dataset, IndexedShards, Indexer
from touchfs.dataset.shard import Shard

_LOOK_SECONDS = 0.1
# Looking takes at most this part of the time.
_LOOKING_PART = 0.05
# The answer how far it is comes before the one that time is up, also on a busy machine.
_SPARE_SECONDS, _SPARE_PART = 1.0, 0.25


class AwaitedIndexer:
    """The indexer of a dataset, around its `own` one. `ask` has all shards indexed, and is false if that has failed."""

    def __init__(self, own: Indexer, dataset: Dataset, ask: Callable[[], bool], timeout_seconds: float | None) -> None:
        self._own = own
        self._source = dataset.source
        self._shards = len(dataset.listed)
        self._ask = ask
        self._timeout_seconds = timeout_seconds

    def shard(self, position: int) -> Shard:
        return self._own.shard(position)

    def headers(self, position: int) -> Shard:
        return self._own.headers(position)

    def has(self, position: int) -> bool:
        return self._own.has(position)

    def has_headers(self, position: int) -> bool:
        return self._own.has_headers(position)

    def all(self) -> IndexedShards:
        """See `Indexer.all`. Raises NotIndexedError if that takes too long. If it has failed, it is tried here: the
        error says why.
        """
        now = began = time.monotonic()
        limit = math.inf if (seconds := self._timeout_seconds) is None else seconds
        limit -= min(_SPARE_SECONDS, limit * _SPARE_PART)
        while self._ask() and (count := sum(map(self._own.has, range(self._shards)))) < self._shards:
            looked, now = now, time.monotonic()
            if now - began > limit:
                problem = f"{count:,} of {self._shards:,} shards are indexed, and this needs all: try again later"
                raise NotIndexedError(problem, path=self._source)
            time.sleep(max(_LOOK_SECONDS, (now - looked) / _LOOKING_PART))
            now = time.monotonic()
        return self._own.all()


def await_index(dataset: Dataset, ask: Callable[[], bool], timeout_seconds: float | None) -> None:
    """Let all processes that use a dataset from now on wait for an index of all shards instead of making it."""
    dataset.index_by(lambda own: AwaitedIndexer(own, dataset, ask, timeout_seconds))
