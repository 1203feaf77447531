"""Entries of ids sorted by their hashes: batches are sorted in memory, and merged from an unnamed temporary file.

An entry is two u64: the hash of an id, and its span, which is where it begins in the list, times 2^17, and its length.
The hashes are divided into `PARTS` ranges, so a process that sorts holds the entries of one batch or of one part.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from touchfs.core.packed_bytes import PackedBytes
from touchfs.select.ids.hashing import SIZE_MAX, hashes_of

PARTS = 256
_BITS = np.uint64(56)
LENGTH_BITS = SIZE_MAX.bit_length()
_ENTRY = 16


class SortedPart(NamedTuple):
    """The entries of a part in the order of their hashes: arrays of shape (n,)."""

    hashes: NDArray[np.uint64]
    spans: NDArray[np.uint64]


class _SortedBatch(NamedTuple):
    """A sorted batch in the file: where it begins, and the first entry of each part."""

    offset: int
    firsts: list[int]


class EntrySorter:
    """Sorts the entries of ids. `file` is its own, and `keys` are those of the hashes. Raises OSError if the file
    cannot be written.
    """

    def __init__(self, file: IO[bytes], keys: NDArray[np.uint64]) -> None:
        self._file = file
        self._keys = keys
        self._batches: list[_SortedBatch] = []

    def add(self, ids: PackedBytes, offset: int) -> None:
        """Add ids, whose data is at an offset in the list."""
        hashes = hashes_of(ids, self._keys)
        order = np.argsort(hashes)
        spans = (ids.starts + offset << LENGTH_BITS) + ids.lengths
        entries = np.stack([hashes[order], spans.astype(np.uint64)[order]], axis=1)
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


def bounds_of_parts(hashes: NDArray[np.uint64]) -> list[int]:
    """Of sorted hashes, the place of the first one of each part, and their number."""
    return np.searchsorted(hashes >> _BITS, np.arange(PARTS + 1, dtype=np.uint64)).tolist()  # type: ignore[no-any-return]
