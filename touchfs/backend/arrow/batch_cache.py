"""The record batches that were read last, over all shards of a backend, bounded in number and in bytes.

A batch of a mapped file takes a few KiB, one of a compressed file takes its decoded size.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple, TypeAlias

BATCHES = 64
# As one batch of 1,000 images of 64 kB. The batch read last is kept, whatever its size.
DECODED_BYTES = 64 * 2**20

# By the number of the column
Columns: TypeAlias = dict[int, Any]


class CachedBatch(NamedTuple):
    """The columns of a batch, and the bytes that are kept for them."""

    columns: Columns
    size: int


class BatchCache:
    """Columns of batches by shard and number. It may be used in threads: at worst a batch is read twice."""

    def __init__(self) -> None:
        self._batches: OrderedDict[tuple[int, int], CachedBatch] = OrderedDict()
        self._size = 0

    def get(self, shard: int, number: int, load: Callable[[int], CachedBatch]) -> Columns:
        """Return the columns of a batch, which are loaded if they are not here."""
        key = shard, number
        try:
            self._batches.move_to_end(key)
            return self._batches[key].columns
        except KeyError:
            batch = load(number)
        with suppress(KeyError):
            self._size -= self._batches.pop(key).size
        while self._batches and (len(self._batches) >= BATCHES or self._size + batch.size > DECODED_BYTES):
            with suppress(KeyError):
                self._size -= self._batches.popitem(last=False)[1].size
        self._batches[key] = batch
        self._size += batch.size
        return batch.columns

    def forget(self, shard: int) -> None:
        """Drop the batches of a shard, so that its file is unmapped."""
        for key in [key for key in self._batches if key[0] == shard]:
            with suppress(KeyError):
                self._size -= self._batches.pop(key).size
