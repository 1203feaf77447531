"""Ids sorted by their hashes, each once: batches are sorted in memory, and merged from an unnamed temporary file.

The hashes are divided into `PARTS` ranges, and the sorted list has each as a part: its hashes, where each id begins
and where the last one ends, and the ids. So a process that sorts holds one batch or one part. All numbers are
little-endian, and parts begin at multiples of 8 bytes.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from typing import IO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from touchfs.core.extent import Buffer
from touchfs.format.packed_ids import PackedIds

PARTS = 256
_BITS = np.uint64(56)


class SortedPart(NamedTuple):
    """A part of the sorted list: how many ids it has, and its bytes."""

    ids: int
    data: list[Buffer]


class _SortedBatch(NamedTuple):
    """A sorted batch in the file: where it begins, its hashes and lengths, and for each part its first id and byte."""

    offset: int
    firsts: list[int]
    bytes_before: list[int]


def part_of(hashes: NDArray[np.uint64]) -> NDArray[np.int64]:
    """The number of the part that has each hash."""
    return (hashes >> _BITS).astype(np.int64)


def sorted_parts(batches: Iterable[tuple[PackedIds, NDArray[np.uint64]]], directory: str) -> Iterator[SortedPart]:
    """Yield all parts in order, of batches of ids and their hashes. Raises OSError if the temporary file cannot be
    written in `directory`.
    """
    with tempfile.TemporaryFile(dir=directory) as file:
        runs = [_write(file, *batch) for batch in batches]
        for part in range(PARTS):
            yield _merged([_read(file, run, part) for run in runs])


def _write(file: IO[bytes], batch: PackedIds, given: NDArray[np.uint64]) -> _SortedBatch:
    ids, hashes = _distinct(batch, given)
    firsts = np.searchsorted(part_of(hashes), np.arange(PARTS + 1)).tolist()
    before = np.append(ids.starts, len(ids.data))
    offset = file.tell()
    for array in (hashes, ids.lengths, ids.data):
        file.write(array.data)
    return _SortedBatch(offset, firsts, before[firsts].tolist())


def _read(file: IO[bytes], run: _SortedBatch, part: int) -> tuple[PackedIds, NDArray[np.uint64]]:
    first, last, count = run.firsts[part], run.firsts[part + 1], run.firsts[-1]
    start, end = run.bytes_before[part], run.bytes_before[part + 1]

    def piece(offset: int, size: int) -> bytes:
        file.seek(run.offset + offset)
        return file.read(size)

    hashes = np.frombuffer(piece(8 * first, 8 * (last - first)), np.uint64)
    lengths = np.frombuffer(piece(8 * (count + first), 8 * (last - first)), np.int64)
    data = np.frombuffer(piece(16 * count + start, end - start), np.uint8)
    return PackedIds(data, np.cumsum(lengths) - lengths, lengths), hashes


def _merged(pieces: list[tuple[PackedIds, NDArray[np.uint64]]]) -> SortedPart:
    empty = np.empty(0, np.int64)
    lengths = np.concatenate([empty, *(ids.lengths for ids, _ in pieces)])
    data = np.concatenate([empty.view(np.uint8), *(ids.data for ids, _ in pieces)])
    hashes = np.concatenate([empty.view(np.uint64), *(each for _, each in pieces)])
    ids, hashes = _distinct(PackedIds(data, np.cumsum(lengths) - lengths, lengths), hashes)
    bounds = np.append(ids.starts, len(ids.data))
    return SortedPart(len(hashes), [hashes.data, bounds.data, ids.data.data, bytes(-len(ids.data) % 8)])


def _distinct(ids: PackedIds, hashes: NDArray[np.uint64]) -> tuple[PackedIds, NDArray[np.uint64]]:
    """The ids in the order of their hashes, each once."""
    order = np.argsort(hashes, kind="stable")
    hashes, ids = hashes[order], ids.taken(order)
    repeated = np.flatnonzero(hashes[1:] == hashes[:-1]) + 1
    if not len(repeated):
        return ids, hashes
    is_kept, before = np.ones(len(hashes), bool), -1
    of_one_hash: set[bytes] = set()
    for place in repeated.tolist():
        if place - 1 != before:
            of_one_hash = {ids.at(place - 1)}
        is_kept[place] = ids.at(place) not in of_one_hash
        of_one_hash.add(ids.at(place))
        before = place
    kept = np.flatnonzero(is_kept)
    return ids.taken(kept), hashes[kept]
