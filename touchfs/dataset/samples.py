"""The samples of an indexed dataset by position, made from its catalogs alone.

    samples = DatasetSamples(open_dataset("/data/train"))
    samples[7]["txt"]

A position is a shard, found by bisection over the numbers of samples before it, and an ordinal in the shard. The
catalog lists the files of an ordinal, so only the requested bytes are read. The most recently used shards stay open.
Samples can be used in threads, after a fork and after pickling; open shards are not pickled.
"""

from __future__ import annotations

import hashlib
import json
import os
from abc import abstractmethod
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import accumulate
from typing import Any, TypeAlias, overload

import numpy as np
from numpy.typing import NDArray

from touchfs.catalog.table import Table
from touchfs.dataset import Dataset
from touchfs.dataset.open_shard import SHARDS_KEPT, OpenShard
from touchfs.dataset.sample import REPORT, Sample, SampleFile
from touchfs.errors import FormatError
from touchfs.extent import Content

Positions: TypeAlias = Sequence[int] | NDArray[np.int64]

CATALOG_DAMAGED = "its catalog is damaged: index with --force"
# From this number of positions on, NumPy is faster.
_MANY = 16


class Samples(Sequence[Sample]):
    """The samples of a view, in dataset order. `counts` has their number in each shard. `view` is its name in paths.

    Raises FormatError if a shard cannot be opened at all, because repairing it would move all positions behind it.
    """

    view: str

    def __init__(self, dataset: Dataset, counts: Sequence[int]) -> None:
        for shard in dataset.shards:
            if shard.report and not shard.samples and not shard.size:
                raise FormatError(" ".join(shard.report.split()), path=shard.path)
        self.dataset = dataset
        self._starts = list(accumulate(counts, initial=0))
        self._open: OrderedDict[int, OpenShard] = OrderedDict()

    @abstractmethod
    def show(self, shard: OpenShard, position: int, number: int) -> Sample:
        """The `number`-th sample of an open shard, which is at `position` in the dataset."""

    @cached_property
    def fingerprint(self) -> str:
        """A hash that does not depend on where data and index are, but on which samples are at the positions.

        It covers the view, and for each shard its name, its number of samples, and the names and sizes of its files.
        A copy changes times and inodes, and hashing the bytes would read all of them: so files that were rewritten
        with the same sizes have the same fingerprint.
        """
        facts = [
            (shard.name, count, sorted((name, identity.size) for name, identity in shard.files.items()))
            for shard, count in zip(self.dataset.shards, self._counts(), strict=True)
        ]
        return hashlib.blake2b(json.dumps([self.view, facts]).encode(), digest_size=16).hexdigest()

    @cached_property
    def identity(self) -> str:
        """A hash that changes as soon as any file of the data changes: results computed from them are then invalid."""
        facts = [self.view, *((shard.path, shard.identity) for shard in self.dataset.shards)]
        return hashlib.blake2b(json.dumps(facts).encode(), digest_size=16).hexdigest()

    def _counts(self) -> Iterator[int]:
        return (end - start for start, end in zip(self._starts, self._starts[1:], strict=False))

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

    def paths(self, positions: Positions) -> list[bytes]:
        """The path of each sample's first file, relative to the root, or of its shard's ERROR.txt if it has no file."""
        if len(positions) < _MANY:
            return [self._path_at(int(position)) for position in positions]
        paths: list[bytes] = [b""] * len(positions)
        array = np.asarray(positions, np.int64)
        shards = np.searchsorted(self._starts, array, "right") - 1
        if shards.min() == shards.max():
            return self._paths_in(int(shards[0]), array)
        by_shard = np.argsort(shards, kind="stable")
        for places in np.split(by_shard, np.flatnonzero(np.diff(shards[by_shard])) + 1):
            for place, path in zip(places.tolist(), self._paths_in(int(shards[places[0]]), array[places]), strict=True):
                paths[place] = path
        return paths

    def _paths_in(self, shard: int, positions: NDArray[np.int64]) -> list[bytes]:
        return [self._path_at(int(position)) for position in positions]

    def _path_at(self, position: int) -> bytes:
        return self._at(position).first_path()

    def _at(self, position: int) -> Sample:
        shard = bisect_right(self._starts, position) - 1
        try:
            return self.show(self._shard(shard), shard, position - self._starts[shard])
        except IndexError as error:  # an IndexError would end an iteration
            raise FormatError(CATALOG_DAMAGED, path=self.dataset.shards[shard].path) from error

    def _shard(self, position: int) -> OpenShard:
        try:
            self._open.move_to_end(position)
            return self._open[position]
        except KeyError:  # not cached, or evicted by another thread in between
            opened = self._open[position] = OpenShard(self.dataset, position)
            if len(self._open) > SHARDS_KEPT:
                with suppress(KeyError):
                    self._open.popitem(last=False)
            return opened

    def __getstate__(self) -> dict[str, Any]:
        full = self.dataset
        dataset = Dataset(full.source, full.shards, "an index of keys is not sent to other processes", full.limits)
        return {**self.__dict__, "dataset": dataset, "_open": OrderedDict()}

    def __repr__(self) -> str:
        return f"<{len(self)} of {self.view} of {self.dataset.source!r}>"


class CataloguedSamples(Samples):
    """Samples whose files are rows of a catalog."""

    @abstractmethod
    def first_rows(self, shard: OpenShard, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """The row of the first file of each of these samples of a shard; -1 for a sample without files."""

    def _paths_in(self, shard: int, positions: NDArray[np.int64]) -> list[bytes]:
        if len(positions) < _MANY:
            return super()._paths_in(shard, positions)
        opened = self._shard(shard)
        rows = self.first_rows(opened, positions - self._starts[shard])
        if rows.min() < 0:
            return super()._paths_in(shard, positions)
        return opened.tables[self.view].paths(rows, os.fsencode(f"{self.view}/{opened.shard.name}/"))


class DatasetSamples(CataloguedSamples):
    """The samples of the view `shards/`."""

    view = "shards"

    def __init__(self, dataset: Dataset) -> None:
        super().__init__(dataset, [shard.samples for shard in dataset.shards])

    def show(self, shard: OpenShard, position: int, number: int) -> Sample:
        """The sample with this ordinal."""
        table = shard.tables[self.view]
        return CataloguedSample(self.view, shard, table, table.files(number), number)

    def first_rows(self, shard: OpenShard, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """The row of the first file of each sample; -1 for a sample without files."""
        return shard.tables[self.view].first_files(numbers)

    def _path_at(self, position: int) -> bytes:
        """Does not make the sample, which would double the time."""
        number = bisect_right(self._starts, position) - 1
        shard = self._shard(number)
        table = shard.tables[self.view]
        rows = table.files(position - self._starts[number])
        path = table.path(rows[0]) if rows else REPORT
        return b"%b/%b/%b" % (self.view.encode(), os.fsencode(shard.shard.name), path)


class CataloguedSample(Sample):
    """A sample whose files are rows of a catalog, which is read on access."""

    __slots__ = ("_named", "_rows", "_shard", "_table")

    def __init__(
        self,
        view: str,
        shard: OpenShard,
        table: Table,
        rows: Sequence[int],
        ordinal: int,
        number: int = 0,
        shar_epoch: int | None = None,
    ) -> None:
        super().__init__(view, ordinal, number, shar_epoch)
        self._shard = shard
        self._table = table
        self._rows = rows
        self._named: dict[str, int] | None = None

    @property
    def shard(self) -> str:
        """The name of its shard."""
        return self._shard.shard.name

    @property
    def key(self) -> str:
        """The key; its ordinal with 8 digits if nothing of it can be served."""
        return self._table.key(self._rows[0]) if self._rows else f"{self.ordinal:08d}"

    @property
    def rows(self) -> dict[str, int]:
        """The rows of its files, by extension."""
        if self._named is None:
            self._named = {self.extension(row): row for row in self._rows}
        return self._named

    @property
    def duration(self) -> float:
        """Seconds of its first recording, by the catalog, else by its header.

        Raises AttributeError if neither has it.
        """
        for row in self._rows:
            seconds = self._shard.seconds(self._table, row)
            if seconds is not None:
                return seconds
        return super().duration

    def extension(self, row: int) -> str:
        """The extension of the file at a row, as a key of this mapping."""
        size = self._table.suffix[row]
        return self._table.ending(row, size - 1) if size else ""

    def file(self, extension: str) -> SampleFile:
        """The file with an extension. Raises KeyError."""
        return CataloguedFile(self.view, self._shard, self._table, self.rows[extension])

    def __getitem__(self, extension: str) -> bytes:
        return self._shard.read(self._table, self._row(extension))

    def _row(self, extension: str) -> int:
        """The row of the file with an extension. Raises KeyError. For one file, no mapping of all is built."""
        if self._named is not None:
            return self._named[extension]
        for row in reversed(self._rows):  # as in the mapping, the last of two counts
            if self.extension(row) == extension:
                return row
        raise KeyError(extension)

    def __iter__(self) -> Iterator[str]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, extension: object) -> bool:
        return extension in self.rows

    def __copy__(self) -> CataloguedSample:
        kind = type(self)
        return kind(self.view, self._shard, self._table, self._rows, self.ordinal, self.number, self.shar_epoch)


class CataloguedFile:
    """A file that is a row of a catalog."""

    __slots__ = ("_row", "_shard", "_table", "_view")

    def __init__(self, view: str, shard: OpenShard, table: Table, row: int) -> None:
        self._view = view
        self._shard = shard
        self._table = table
        self._row = row

    @property
    def field(self) -> str:
        """The name of the sample's field from which the file is made."""
        return self._shard.kind_of(self._table, self._row).field

    def path(self) -> str:
        """Its path relative to the root of the tree."""
        return path_of(self._view, self._shard.shard.name, self._table, self._row)

    def content(self) -> Content:
        """The bytes of the file, with random access."""
        return self._shard.content(self._table, self._row)


def path_of(view: str, shard: str, table: Table, row: int) -> str:
    """The path of the file at a row of a view's table, relative to the root of the tree."""
    return f"{view}/{shard}/{os.fsdecode(table.path(row))}"
