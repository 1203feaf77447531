"""The samples of an indexed dataset by position, made from its catalogs alone.

    samples = DatasetSamples(open_dataset("/data/train"))
    samples[7]["txt"]
    samples.read("txt", [7, 4, 7])

A position is a shard, found by bisection over the numbers of samples before it, and an ordinal in the shard. The
catalog lists the files of an ordinal, so only the requested bytes are read. The most recently used shards stay open.
Samples can be used in threads, after a fork and after pickling; open shards are not pickled.
"""

from __future__ import annotations

import json
import os
from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, partial
from itertools import accumulate, chain, pairwise
from typing import Any, TypeAlias, overload

import numpy as np
from numpy.typing import NDArray

from touchfs.catalog.columns import take
from touchfs.catalog.table import Table
from touchfs.catalog.table_builder import encode_key
from touchfs.core.errors import FormatError
from touchfs.core.location import Location
from touchfs.core.measure import SECONDS, TOKENS, UNKNOWN
from touchfs.core.names import REPORT, hex_digest
from touchfs.core.packed_bytes import PackedBytes
from touchfs.dataset import Dataset
from touchfs.dataset.catalogued import CataloguedSample
from touchfs.dataset.open_shard import SHARDS_KEPT, OpenShard
from touchfs.dataset.sample import Sample
from touchfs.dataset.shard import Shard
from touchfs.posix.bounded_cache import BoundedCache
from touchfs.registry.open import shard_name
from touchfs.shard.single import without_lists
from touchfs.store.shard_lists import ALIKE, ShardList

Positions: TypeAlias = Sequence[int] | NDArray[np.int64]

CATALOG_DAMAGED = "its catalog is damaged: index with --force"
# From this number of positions on, NumPy is faster.
_MANY = 16
# Keys that are enough for a batch
_KEYS = 1 << 16
# First position, end, number in the dataset, and the shard itself.
_Latest: TypeAlias = tuple[int, int, int, OpenShard | None]
_NONE: _Latest = (0, 0, 0, None)


def as_positions(positions: Positions, count: int) -> NDArray[np.int64]:
    """Return positions as an array of shape (n,), from 0 on; negative ones count from the end, at `count`.

    Raises IndexError for one out of range, and TypeError for what is no integer.
    """
    array = np.asarray(positions)
    if array.ndim != 1 or (array.dtype.kind not in "iu" and len(array)):
        raise TypeError(f"positions are integers of shape (n,), not {array.dtype} of shape {array.shape}")
    low, high = (int(array.min()), int(array.max())) if len(array) else (0, -1)
    if not -count <= low <= high + 1 <= count:
        raise IndexError(f"positions {low} to {high} of {count}")
    return array.astype(np.int64, copy=False) if low >= 0 else array.astype(np.int64) % count


def _facts(shard: Shard, count: int) -> tuple[Any, ...]:
    """What tells a shard, of which `count` samples are meant, from another of its name, wherever they are."""
    files = sorted((name, file.size) for name, file in without_lists(shard.files).items())
    return count, files, *([shard.regrouped] if shard.regrouped else ())


class Samples(Sequence[Sample]):
    """The samples of a view, in dataset order. `counts` has their number in each shard. `view` is its name in paths.

    Raises FormatError if a shard cannot be opened at all, because repairing it would move all positions behind it.
    """

    view: str

    def __init__(self, dataset: Dataset, counts: Sequence[int]) -> None:
        for shard in dataset.shards:
            if shard.report and not shard.samples and not shard.size:
                head, _, rest = shard.report.partition("\n\n")
                reason = rest.partition("\n\n")[0]
                raise FormatError(f"{head.removesuffix('.')}: {' '.join(reason.split())}", path=shard.path)
        self.dataset = dataset
        self._starts = list(accumulate(counts, initial=0))
        self._bounds = np.array(self._starts, np.int64)
        self._open: BoundedCache[int, OpenShard] = BoundedCache(SHARDS_KEPT)
        self._latest = _NONE

    @abstractmethod
    def show(self, shard: OpenShard, position: int, number: int) -> Sample:
        """The `number`-th sample of an open shard, which is at `position` in the dataset."""

    @cached_property
    def fingerprint(self) -> str:
        """A hash that does not depend on where data and index are, but on which samples are at the positions.

        It covers the view, the split that was asked for, the contents of overlays, and for each shard its name, its
        number of samples, and the names and sizes of its files, but not Kaldi's lists beside it: what these change is
        the number of its segments. A shard whose samples once were others has another fingerprint than then, even if
        their number is the same. A copy changes times and inodes, and hashing the bytes would read all of them: so
        files that were rewritten with the same sizes have the same fingerprint.
        """
        facts = [
            (shard.name, *_facts(shard, count))
            for shard, count in zip(self.dataset.shards, self._counts(), strict=True)
        ]
        split = [] if self.dataset.split is None else [self.dataset.split]
        overlays = [["overlays", self.dataset.overlays]] if self.dataset.overlays else []
        return hex_digest(json.dumps([self.view, facts, *split, *overlays]).encode())

    def shard_list(self) -> ShardList | None:
        """The shards that have such samples, with what the fingerprint covers of each, but by their own names."""
        split, counts = self.dataset.split, [*self._counts()]
        ids: list[str] = []
        paths: dict[str, set[str]] = {}
        for shard, count in zip(self.dataset.shards, counts, strict=True):
            name = shard_name(Location.of(shard.path), shard.container)
            ids.append(hex_digest(json.dumps([name, *_facts(shard, count)]).encode()))
            paths.setdefault(ids[-1], set()).add(shard.path)
        named = (each if len(paths[each]) == 1 else each + ALIKE for each in ids)
        shards = tuple((each, count) for each, count in zip(named, counts, strict=True) if count)
        what = self.view if split is None else f"{self.view} of the split {split}"
        overlays = f" with the overlays {self.dataset.overlays}" if self.dataset.overlays else ""
        return ShardList(what + overlays, shards)

    @cached_property
    def identity(self) -> str:
        """A hash that changes as soon as any file of the data changes: results computed from them are then invalid."""
        facts = [self.view, *((shard.path, shard.identity) for shard in self.dataset.shards)]
        return hex_digest(json.dumps(facts).encode())

    def _counts(self) -> Iterator[int]:
        return (end - start for start, end in zip(self._starts, self._starts[1:], strict=False))

    def places_of(self, key: str) -> Iterator[tuple[int, int]]:
        """The shard and the ordinal in it of each sample with a key."""
        return ((holder.position, holder.ordinal) for holder in self.dataset.find(key))

    def in_shards(self, positions: NDArray[np.int64]) -> list[tuple[int, NDArray[np.int64]]]:
        """For each shard its first position, and those of the ascending `positions` that it has."""
        return list(
            zip(self._starts, np.split(positions, np.searchsorted(positions, self._bounds[1:-1])), strict=False)
        )

    def __len__(self) -> int:
        return self._starts[-1]

    @overload
    def __getitem__(self, position: int) -> Sample: ...

    @overload
    def __getitem__(self, position: slice) -> list[Sample]: ...

    def __getitem__(self, position: int | slice) -> Sample | list[Sample]:
        count = self._starts[-1]
        if type(position) is int and 0 <= position < count:
            return self._at(position)
        if isinstance(position, slice):
            return [self._at(each) for each in range(*position.indices(count))]
        if not -count <= position < count:
            raise IndexError(f"sample {position} of {count}")
        return self._at(position % count)

    def __iter__(self) -> Iterator[Sample]:
        return map(self._at, range(len(self)))

    def close(self) -> None:
        """Close the files of shards that are open. They are opened again when they are read."""
        self._latest = _NONE
        for _, shard in self._open.items():
            shard.close()
        self._open.forget()

    def paths(self, positions: Positions) -> list[bytes]:
        """The path of each sample's first file, relative to the root, or of its shard's ERROR.txt if it has no file."""
        if len(positions) < _MANY:
            return [self._path_at(int(position)) for position in positions]
        return self._by_shard(self._path_at, self._paths_in, np.asarray(positions, np.int64))

    def read(self, extension: str, positions: Positions) -> list[bytes]:
        """Read the file with an extension of each sample at `positions`: integers in any order, which may repeat.

        The bytes are in the order of `positions`, of shape (n,). Files are read in the order of the data, and small
        neighbours with one call: beside the result this takes about 200 bytes a position, and 128 KiB.

        Raises IndexError, NotFoundError for a sample without such a file, and what `sample[extension]` raises.
        """
        read_at, read_in = partial(self._read_at, extension), partial(self._read_in, extension)
        return self._by_shard(read_at, read_in, as_positions(positions, len(self)))

    def lengths(self, measure: str) -> NDArray[np.int64]:
        """The length of each sample (`touchfs.core.measure`) by the index; `UNKNOWN` where it does not tell it.

        That of seconds is its recording's, that of tokens the number of elements of all its arrays.
        """
        found = np.full(len(self), UNKNOWN, np.int64)
        for position, sample in enumerate(self if measure == SECONDS else ()):
            if (seconds := sample.known_duration) is not None:
                found[position] = round(seconds * 1e6)
        return found

    def keys(self, positions: NDArray[np.int64]) -> Iterator[PackedBytes]:
        """Yield the keys of these samples as bytes, in batches."""
        for first in range(0, len(positions), _KEYS):
            batch = positions[first : first + _KEYS].tolist()
            yield PackedBytes.of([encode_key(self._at(position).key) for position in batch])

    def _read_in(self, extension: str, shard: int, positions: NDArray[np.int64]) -> list[bytes]:
        return [self._read_at(extension, position) for position in positions.tolist()]

    def _read_at(self, extension: str, position: int) -> bytes:
        sample = self._at(position)
        try:
            return sample[extension]
        except KeyError:
            raise sample.missing(extension) from None

    def _by_shard(
        self,
        of_one: Callable[[int], bytes],
        of_shard: Callable[[int, NDArray[np.int64]], list[bytes]],
        positions: NDArray[np.int64],
    ) -> list[bytes]:
        """The values of positions: `of_shard(shard, positions)`, or `of_one(position)` if a shard has only few."""
        if len(positions) < _MANY:
            return [of_one(position) for position in positions.tolist()]
        shards = np.searchsorted(self._bounds, positions, "right") - 1
        if (shards == shards[0]).all():
            return of_shard(int(shards[0]), positions)
        found = [b""] * len(positions)
        by_shard = np.argsort(shards, kind="stable")
        shards, positions, places = shards[by_shard], positions[by_shard], by_shard.tolist()
        firsts = [0, *(np.flatnonzero(np.diff(shards)) + 1).tolist(), len(places)]
        if len(firsts) * _MANY > len(places):
            values: Iterable[bytes] = map(of_one, positions.tolist())
        else:
            groups = pairwise(firsts)
            values = chain.from_iterable(of_shard(int(shards[first]), positions[first:end]) for first, end in groups)
        for place, value in zip(places, values, strict=True):
            found[place] = value
        return found

    def _paths_in(self, shard: int, positions: NDArray[np.int64]) -> list[bytes]:
        return [self._path_at(int(position)) for position in positions]

    def _path_at(self, position: int) -> bytes:
        return self._at(position).first_path()

    def _at(self, position: int) -> Sample:
        first, end, number, shard = self._latest
        if shard is None or not first <= position < end:
            number = bisect_right(self._starts, position) - 1
            first, end, shard = self._starts[number], self._starts[number + 1], self._shard(number)
            self._latest = first, end, number, shard
        try:
            return self.show(shard, number, position - first)
        except IndexError as error:  # an IndexError would end an iteration
            raise FormatError(CATALOG_DAMAGED, path=shard.shard.path) from error

    def _shard(self, position: int) -> OpenShard:
        found = self._open.find(position)
        return (
            self._open.get(position, lambda: OpenShard(self.dataset, self.dataset.shard(position)))
            if found is None
            else found
        )

    def __getstate__(self) -> dict[str, Any]:
        full = self.dataset
        no_keys = "an index of keys is not sent to other processes"
        dataset = Dataset.of(
            full.source,
            full.shards,
            no_keys,
            full.limits,
            split=full.split,
            index_again=full.index_again,
            overlays=full.overlays,
        )
        return {**self.__dict__, "dataset": dataset, "_latest": _NONE}

    def __repr__(self) -> str:
        return f"<{len(self)} of {self.view} of {self.dataset.source!r}>"


class CataloguedSamples(Samples):
    """Samples whose files are rows of a catalog."""

    @abstractmethod
    def first_rows(self, shard: OpenShard, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """The row of the first file of each of these samples of a shard; -1 for a sample without files."""

    @abstractmethod
    def ordinals(self, shard: int, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """The ordinals in a shard of these samples of it."""

    @abstractmethod
    def numbers(self, shard: int, table: Table, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """The numbers in a shard of the samples that the files at these rows are of."""

    def lengths(self, measure: str) -> NDArray[np.int64]:
        return np.concatenate(
            [np.zeros(0, np.int64), *map(partial(self.lengths_in, measure), range(len(self._starts) - 1))]
        )

    def keys(self, positions: NDArray[np.int64]) -> Iterator[PackedBytes]:
        """See `Samples.keys`. Those of small shards are joined."""
        shards = np.searchsorted(self._bounds, positions, "right") - 1
        firsts = np.flatnonzero(np.diff(shards, prepend=-1)).tolist()
        waiting, count = list[PackedBytes](), 0
        for first, end in pairwise([*firsts, len(positions)]):
            waiting.append(self._keys_in(int(shards[first]), positions[first:end]))
            count += end - first
            if count >= _KEYS or end == len(positions):
                yield PackedBytes.joined(waiting)
                waiting, count = [], 0

    def _keys_in(self, shard: int, positions: NDArray[np.int64]) -> PackedBytes:
        opened = self._shard(shard)
        table = opened.tables[self.view]
        ordinals = self.ordinals(shard, positions - self._starts[shard])
        try:
            rows = table.first_files(ordinals)
            keys = table.keys(rows[rows >= 0])
        except IndexError as error:
            raise FormatError(CATALOG_DAMAGED, path=opened.shard.path) from error
        # Nothing of the others can be served.
        return PackedBytes.either(rows >= 0, keys, PackedBytes.of_numbers(ordinals[rows < 0]))

    def lengths_in(self, measure: str, shard: int) -> NDArray[np.int64]:
        """The lengths of the samples of a shard, as `lengths`."""
        opened = self._shard(shard)
        table = opened.tables[self.view]
        by_row = opened.lengths(table, measure)
        found = np.full(self._starts[shard + 1] - self._starts[shard], UNKNOWN, np.int64)
        try:
            rows = take(table.order, np.arange(len(table.order)))
            rows = rows[by_row[rows] != UNKNOWN]
            numbers = self.numbers(shard, table, rows)
            if measure == TOKENS:
                found[numbers] = 0
                np.add.at(found, numbers, by_row[rows])
            else:  # the first recording counts: of several values for one place, the last one stays
                found[numbers[::-1]] = by_row[rows[::-1]]
        except IndexError as error:
            raise FormatError(CATALOG_DAMAGED, path=opened.shard.path) from error
        return found

    def _paths_in(self, shard: int, positions: NDArray[np.int64]) -> list[bytes]:
        opened = self._shard(shard)
        rows = self.first_rows(opened, positions - self._starts[shard])
        if rows.min() < 0:
            return super()._paths_in(shard, positions)
        return opened.tables[self.view].paths(rows, os.fsencode(f"{opened.shard.path_in(self.view)}/"))


class DatasetSamples(CataloguedSamples):
    """The samples of the view `shards/`."""

    view = "shards"

    def __init__(self, dataset: Dataset) -> None:
        super().__init__(dataset, [shard.samples for shard in dataset.shards])

    def show(self, shard: OpenShard, position: int, number: int) -> Sample:
        """The sample with this ordinal."""
        table = shard.tables[self.view]
        return CataloguedSample(self.view, shard, table, table.files(number), number)

    def position(self, shard: int, ordinal: int) -> int:
        """The position of the sample of a shard with this ordinal."""
        return self._starts[shard] + ordinal

    def ordinals(self, shard: int, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """The same."""
        return numbers

    def numbers(self, shard: int, table: Table, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """The ordinals of the samples."""
        return take(table.ordinal, rows)

    def first_rows(self, shard: OpenShard, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """The row of the first file of each sample; -1 for a sample without files."""
        return shard.tables[self.view].first_files(numbers)

    def _read_in(self, extension: str, shard: int, positions: NDArray[np.int64]) -> list[bytes]:
        opened = self._shard(shard)
        table = opened.tables[self.view]
        try:
            rows = table.rows_of(positions - self._starts[shard], extension.encode("utf-8", "surrogateescape"))
        except UnicodeEncodeError:  # no file name has it
            rows = np.array([-1])
        if rows.min() < 0:
            raise self._at(int(positions[np.argmin(rows)])).missing(extension)
        return opened.read_many(table, rows)

    def _path_at(self, position: int) -> bytes:
        """Does not make the sample, which would double the time."""
        number = bisect_right(self._starts, position) - 1
        shard = self._shard(number)
        table = shard.tables[self.view]
        rows = table.files(position - self._starts[number])
        path = table.path(rows[0]) if rows else REPORT.encode()
        return b"%b/%b" % (os.fsencode(shard.shard.path_in(self.view)), path)
