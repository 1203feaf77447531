"""Build the index of keys: an external merge sort, partitioned by ranges of hashes.

Each task reads the catalogs of some shards and writes the sorted entries of their keys to its own file, a *run*. The
previous index becomes a run too, with the new positions of its shards, so adding a shard reads only the catalog of that
shard. Then the hashes are divided into ranges of about `PART_ENTRIES` entries. Each task takes one range of every run,
sorts it, and writes it to its place in the index. Both steps run on an executor, and a process holds at most one range
or the keys of one group of shards.
"""

from __future__ import annotations

import os
import tempfile
import zlib
from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from touchfs.catalog.catalog import Catalog
from touchfs.catalog.columns import as_array
from touchfs.catalog.keys import BLOCK, HASHES, HEADER, IDENTITY_SIZE, MAGIC, VERSION, Keys, join_identities
from touchfs.catalog.table import NO_SAMPLE
from touchfs.core import jobs
from touchfs.core.errors import FormatError
from touchfs.core.names import hash_of, quote
from touchfs.posix.atomic import TEMPORARY_PREFIX, write_error
from touchfs.posix.trust import atomic_own_file

PART_ENTRIES = 1 << 22
GROUP_SAMPLES = 1 << 18
_ENTRY = np.dtype([("hash", "<u8"), ("ordinal", "<u4"), ("position", "<u4")])
_GONE = 2**32 - 1


@dataclass(frozen=True, slots=True)
class KeyedShard:
    """A shard to index by key: its identity (32 hexadecimal digits), its number of samples, the path of its catalog,
    and its own path.
    """

    identity: str
    samples: int
    catalog: str
    path: str | None = None


@dataclass(frozen=True, slots=True)
class _Group:
    """The shards of one task with their positions in the dataset, and the path of its run."""

    shards: list[tuple[int, KeyedShard]]
    run: str


@dataclass(frozen=True, slots=True)
class _Run:
    """Sorted entries in a file."""

    path: str
    offset: int
    entries: int

    def load(self, first: int = 0, last: int | None = None) -> NDArray[np.void]:
        count = (self.entries if last is None else last) - first
        if not count:
            return np.empty(0, _ENTRY)
        return np.memmap(self.path, _ENTRY, "r", self.offset + first * _ENTRY.itemsize, (count,))

    def places(self, bounds: Sequence[int]) -> list[int]:
        """Return the index of the first entry at or after each of these hashes."""
        words = self.load().view("<u8")
        return [bisect_left(range(self.entries), bound, key=lambda i: int(words[2 * i])) for bound in bounds]


@dataclass(frozen=True, slots=True)
class _HashRange:
    """A range of hashes: its entries in each run, and the offset in the file at `path` where they are written."""

    ranges: list[tuple[_Run, int, int]]
    path: str
    offset: int


def build_keys(path: str, shards: Sequence[KeyedShard], known: Keys | None, executor: Executor | None = None) -> None:
    """Write the index of keys of a dataset's shards atomically. `known` is the previous index, which was compared with
    its checksums (`Keys.check`). Raises FormatError if it or a catalog is damaged, and SourceError.
    """
    directory = os.path.dirname(path)
    try:
        with tempfile.TemporaryDirectory(prefix=TEMPORARY_PREFIX, dir=directory) as scratch:
            old, new = _compare(known, shards)
            runs = [] if known is None else [_renumber(known, old, os.path.join(scratch, "known"))]
            groups = [_Group(group, os.path.join(scratch, str(n))) for n, group in enumerate(_grouped(shards, new))]
            runs += jobs.run(_make_run, groups, executor)
            _merge(path, shards, runs, executor)
    except OSError as error:
        raise write_error(error, f"cannot be written: {error.strerror or error}", directory) from error


def _compare(known: Keys | None, shards: Sequence[KeyedShard]) -> tuple[NDArray[np.uint32], list[int]]:
    """Return the new position of each shard of the known index, `_GONE` if removed; and the positions of new shards."""
    positions = defaultdict[bytes, deque[int]](deque)  # a dataset may list a shard twice
    for position, shard in enumerate(shards):
        positions[bytes.fromhex(shard.identity)].append(position)
    listed = b"" if known is None else known.identities
    old = np.full(len(listed) // IDENTITY_SIZE, _GONE, np.uint32)
    for i in range(len(old)):
        if there := positions.get(listed[i * IDENTITY_SIZE : (i + 1) * IDENTITY_SIZE]):
            old[i] = there.popleft()
    return old, sorted(position for left in positions.values() for position in left)


def _renumber(known: Keys, positions: NDArray[np.uint32], path: str) -> _Run:
    """Return the known index as a run without the entries of removed shards. Raises FormatError."""
    run = _Run(known.path, HEADER.size + len(known.identities), len(known))
    if np.array_equal(positions, np.arange(len(positions))):
        return run
    kept = 0
    with open(path, "xb") as file:
        for first in range(0, run.entries, PART_ENTRIES):
            entries = np.array(run.load(first, min(first + PART_ENTRIES, run.entries)))
            if entries["position"].max(initial=0) >= len(positions):
                raise FormatError("not an index of keys: index with --force", path=known.path)
            entries["position"] = positions[entries["position"]]
            entries = entries[entries["position"] != _GONE]
            file.write(entries.tobytes())
            kept += len(entries)
    return _Run(path, 0, kept)


def _grouped(shards: Sequence[KeyedShard], positions: Sequence[int]) -> Iterator[list[tuple[int, KeyedShard]]]:
    """Yield groups of shards of about `GROUP_SAMPLES` samples each."""
    group: list[tuple[int, KeyedShard]] = []
    samples = 0
    for position in positions:
        group.append((position, shards[position]))
        samples += shards[position].samples
        if samples >= GROUP_SAMPLES:
            yield group
            group, samples = [], 0
    if group:
        yield group


def _make_run(group: _Group) -> _Run:
    hashes: list[int] = []
    words: list[int] = []
    for position, shard in group.shards:
        table = Catalog(shard.catalog, shard.path).tables["shards"]
        order, before = as_array(table.order), NO_SAMPLE
        ordinals = as_array(table.ordinal)[order]
        for row, ordinal in zip(order.tolist(), ordinals.tolist(), strict=True):
            if ordinal not in (before, NO_SAMPLE) and table.keyed[row]:
                hashes.append(hash_of(quote(table.shown_key(row))))
                words.append(position << 32 | ordinal)
            before = ordinal
    entries = np.empty((len(hashes), 2), "<u8")
    entries[:, 0], entries[:, 1] = hashes, words
    with open(group.run, "xb") as file:
        file.write(_sorted(entries))
    return _Run(group.run, 0, len(entries))


def _merge(path: str, shards: Sequence[KeyedShard], runs: Sequence[_Run], executor: Executor | None) -> None:
    entries = sum(run.entries for run in runs)
    count = max(-(-entries // PART_ENTRIES), 1)
    bounds = [HASHES * i // count for i in range(1, count)]
    places = [[0, *run.places(bounds), run.entries] for run in runs]
    sizes = [sum(each[i + 1] - each[i] for each in places) for i in range(count)]
    with atomic_own_file(path) as file:
        file.write(HEADER.pack(MAGIC, VERSION, len(shards), entries))
        start = file.write(join_identities([shard.identity for shard in shards])) + HEADER.size
        file.flush()
        parts = []
        for i, before in zip(range(count), accumulate(sizes, initial=0), strict=False):
            ranges = [(run, each[i], each[i + 1]) for run, each in zip(runs, places, strict=True)]
            parts.append(_HashRange(ranges, file.name, start + before * _ENTRY.itemsize))
        for _ in jobs.run(_write_part, parts, executor):
            pass
        with open(file.name, "rb") as written:
            blocks = iter(lambda: written.read(BLOCK), b"")
            checksums = np.fromiter(map(zlib.crc32, blocks), "<u4").tobytes()
        file.seek(0, os.SEEK_END)
        file.write(checksums + zlib.crc32(checksums).to_bytes(4, "little"))


def _write_part(part: _HashRange) -> None:
    entries = np.concatenate([np.empty(0, _ENTRY), *(run.load(first, last) for run, first, last in part.ranges)])
    with open(part.path, "r+b") as file:
        file.seek(part.offset)
        file.write(_sorted(entries.view("<u8").reshape(-1, 2)))


def _sorted(entries: NDArray[np.uint64]) -> bytes:
    return entries[np.lexsort((entries[:, 1], entries[:, 0]))].tobytes()
