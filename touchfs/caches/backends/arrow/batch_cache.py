"""The record batches that were read last, over all shards of a backend, bounded in number and in bytes.

A batch of a mapped file takes a few KiB, one of a compressed file takes its decoded size.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

from touchfs.posix.bounded_cache import BoundedCache

BATCHES = 64
# As one batch of 1,000 images of 64 kB. The batch read last is kept, whatever its size.
DECODED_BYTES = 64 * 2**20

# By the number of the column
Columns: TypeAlias = dict[int, Any]


class CachedBatch(NamedTuple):
    """The columns of a batch, and the bytes that are kept for them."""

    columns: Columns
    size: int


# By shard and number
BatchCache: TypeAlias = BoundedCache[tuple[int, int], CachedBatch]


def batch_cache() -> BatchCache:
    """A cache for one backend. A small batch counts as much as each of `BATCHES` has."""
    least = DECODED_BYTES // BATCHES
    return BoundedCache(DECODED_BYTES, lambda batch: max(batch.size, least))
