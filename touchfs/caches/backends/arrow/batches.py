"""Record batches one after the other: those of a table in memory, or of a file (`ipc_batches`).

A row is found by bisection over the first rows of the batches, so it takes as long in 20,000 batches as in 20.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate

import numpy as np
import pyarrow as pa

from touchfs.caches.backends.arrow.batch_cache import BatchCache, CachedBatch, Columns
from touchfs.caches.backends.arrow.mapped_cells import MappedCells
from touchfs.caches.backends.arrow.row_function import compile_row


class Batches(ABC):
    """Record batches of one schema, the shard `number` of a backend.

    `starts` has the first row of each batch, and then the number of rows; `bounds` is the same as an array. `cells`
    reads those columns that need no pyarrow; None if there are none. `columns(number)` returns the others of a batch,
    by their numbers: `load` returns them, checked, and the cache keeps them. `row(row)` returns a row, which must
    exist, as Python values by column.
    """

    def __init__(
        self,
        schema: pa.Schema,
        counts: Sequence[int],
        load: Callable[[int], CachedBatch],
        cache: BatchCache,
        number: int,
        cells: MappedCells | None = None,
    ) -> None:
        def columns(batch: int) -> Columns:
            found = cache.find((number, batch))
            return (found or cache.get((number, batch), lambda: load(batch))).columns

        self.schema = schema
        self.starts = list(accumulate(counts, initial=0))
        self.bounds = np.array(self.starts)
        self.cells = cells
        self.columns = columns
        self._cache = cache
        self._number = number
        # Neither refers to this object, so that a file is unmapped as soon as nobody uses it.
        self.row = compile_row(schema.names, self.starts, cells, columns)

    @abstractmethod
    def batch(self, number: int, start: int = 0, stop: int | None = None) -> pa.RecordBatch:
        """Return the rows `[start, stop)` of a batch, by default all. They are not copied if it is not compressed."""

    def forget(self) -> None:
        """Drop its columns from the cache, so that its file is unmapped."""
        for key, _ in self._cache.items():
            if key[0] == self._number:
                self._cache.pop(key)

    @property
    def rows(self) -> int:
        """The number of rows."""
        return self.starts[-1]

    def between(self, start: int, stop: int) -> list[pa.RecordBatch]:
        """Return the rows `[start, stop)`, which must exist, without copying them."""
        found = []
        number = bisect_right(self.starts, start) - 1
        while start < stop:
            first, end = self.starts[number], min(self.starts[number + 1], stop)
            if end > start:
                found.append(self.batch(number, start - first, end - first))
                start = end
            number += 1
        return found


class TableBatches(Batches):
    """The batches of a table in memory."""

    def __init__(self, table: pa.Table, cache: BatchCache) -> None:
        batches = self._batches = table.to_batches()

        def load(number: int) -> CachedBatch:
            return CachedBatch(dict(enumerate(batches[number].columns)), 0)

        super().__init__(table.schema, [len(batch) for batch in batches], load, cache, 0)

    def batch(self, number: int, start: int = 0, stop: int | None = None) -> pa.RecordBatch:
        return self._batches[number][start:stop]
