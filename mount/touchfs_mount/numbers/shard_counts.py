"""How many shards a mount has, and how many of them are indexed, in memory that its processes share."""

from __future__ import annotations

import time

from touchfs.dataset import Dataset
from touchfs.posix.memory.shared import shared_cells

_LOOK_SECONDS = 1.0
# Counting takes at most this part of the time.
_COUNTING_PART = 0.05


class ShardCounts:
    """The numbers of a mount's shards. Created before the first fork. Only the zygote writes them."""

    def __init__(self) -> None:
        self._shards, self._indexed = shared_cells(1, 1)
        self._dataset: Dataset | None = None
        self._next = 0.0

    @property
    def shards(self) -> int:
        return self._shards[0]

    @property
    def indexed(self) -> int:
        """How many of them were indexed when they were last counted."""
        return self._indexed[0]

    def follow(self, dataset: Dataset) -> None:
        """Count those of a new generation from now on."""
        self._dataset, self._next = dataset, 0.0

    def look(self) -> None:
        """From time to time: count them, until all are indexed."""
        dataset, began = self._dataset, time.monotonic()
        if dataset is None or began < self._next:
            return
        self._shards[0], self._indexed[0] = len(dataset.listed), dataset.indexed_count
        if self.indexed == self.shards:
            self._dataset = None
        now = time.monotonic()
        self._next = now + max(_LOOK_SECONDS, (now - began) / _COUNTING_PART)
