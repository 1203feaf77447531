"""Entries sorted by their hashes: batches are sorted in memory, and merged from an unnamed temporary file.

An entry is two u64: the hash of an id or key, and a value, such as where it is. The hashes are divided into `PARTS`
ranges, so a process that sorts holds the entries of one batch or of one part.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, NamedTuple

import numpy as np
from numpy.typing import NDArray

PARTS = 256
_BITS = np.uint64(56)
_ENTRY = 16


class SortedPart(NamedTuple):
    """The entries of a part in the order of their hashes: arrays of shape (n,)."""

    hashes: NDArray[np.uint64]
    values: NDArray[np.uint64]


class _SortedBatch(NamedTuple):
    """A sorted batch in the file: where it begins, and the first entry of each part."""

    offset: int
    firsts: list[int]


class EntrySorter:
    """Sorts entries. `file` is its own. Raises OSError if it cannot be written."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._batches: list[_SortedBatch] = []

    def add(self, hashes: NDArray[np.uint64], values: NDArray[np.int64]) -> None:
        """Add entries."""
        order = np.argsort(hashes)
        entries = np.stack([hashes[order], values.astype(np.uint64)[order]], axis=1)
        self._batches.append(_SortedBatch(self._file.tell(), bounds_of_parts(entries[:, 0])))
        self._file.write(entries.data)

    def parts(self) -> Iterator[SortedPart]:
        """Yield all parts in order."""
        for number in range(PARTS):
            pieces = [self._read(batch, number) for batch in self._batches]
            entries = np.frombuffer(b"".join(pieces), np.uint64).reshape(-1, 2)
            order = np.argsort(entries[:, 0])
            yield SortedPart(entries[order, 0], entries[order, 1])

    def _read(self, batch: _SortedBatch, part: int) -> bytes:
        first, end = batch.firsts[part], batch.firsts[part + 1]
        self._file.seek(batch.offset + _ENTRY * first)
        return self._file.read(_ENTRY * (end - first))


def part_of(hashes: NDArray[np.uint64]) -> NDArray[np.int64]:
    """The number of the part that has each hash."""
    return (hashes >> _BITS).astype(np.int64)


def bounds_of_parts(hashes: NDArray[np.uint64]) -> list[int]:
    """Of sorted hashes, the place of the first one of each part, and their number."""
    return np.searchsorted(hashes >> _BITS, np.arange(PARTS + 1, dtype=np.uint64)).tolist()  # type: ignore[no-any-return]
