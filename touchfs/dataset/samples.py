"""The samples of an indexed dataset by position, made from its catalogs alone.

    samples = DatasetSamples(open_dataset("/data/train"))
    samples[7]["txt"]

A position is a shard, found by bisection over the counts of all before it, and an ordinal there, whose files the
catalog tells. So nothing is read but what is asked for. Of the shards, those asked for last are kept open. Safe in
threads, after a fork, and when pickled, as what is kept is made anew there.
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
# From so many on, they are quicker looked up by NumPy.
_MANY = 16


class Samples(Sequence[Sample]):
    """What a view shows, in dataset order, where each shard has as many as `counts` says. `view` is as in paths.

    Raises FormatError if a shard cannot be opened at all: what positions mean would change when it is repaired.
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
        """The `number`-th of the shard at a position."""

    @cached_property
    def fingerprint(self) -> str:
        """The same wherever the data and its index are, and another one if there are other samples at the positions.

        It is of the view, and of each shard the name, how many samples it has, and the names and sizes of its files.
        Times and inodes are other ones after a copy, and a hash of the bytes would need them all to be read: so files
        that were made anew in the same sizes pass for the same.
        """
        told = [
            (shard.name, count, sorted((name, identity.size) for name, identity in shard.files.items()))
            for shard, count in zip(self.dataset.shards, self._counts(), strict=True)
        ]
        return hashlib.blake2b(json.dumps([self.view, told]).encode(), digest_size=16).hexdigest()

    @cached_property
    def identity(self) -> str:
        """Another one as soon as any file of the data is another one: what was found out of these holds no more."""
        told = [self.view, *((shard.path, shard.identity) for shard in self.dataset.shards)]
        return hashlib.blake2b(json.dumps(told).encode(), digest_size=16).hexdigest()

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
        """Of the first file of each sample, from the root of the tree; where there is none, of what says why."""
        if len(positions) < _MANY:
            return [self._path_at(int(position)) for position in positions]
        paths: list[bytes] = [b""] * len(positions)
        wanted = np.asarray(positions, np.int64)
        shards = np.searchsorted(self._starts, wanted, "right") - 1
        if shards.min() == shards.max():
            return self._paths_in(int(shards[0]), wanted)
        by_shard = np.argsort(shards, kind="stable")
        for places in np.split(by_shard, np.flatnonzero(np.diff(shards[by_shard])) + 1):
            for place, path in zip(
                places.tolist(), self._paths_in(int(shards[places[0]]), wanted[places]), strict=True
            ):
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
        except IndexError as error:  # which would end an iteration
            raise FormatError(CATALOG_DAMAGED, path=self.dataset.shards[shard].path) from error

    def _shard(self, position: int) -> OpenShard:
        try:
            self._open.move_to_end(position)
            return self._open[position]
        except KeyError:  # not there, or dropped by another thread in between
            opened = self._open[position] = OpenShard(self.dataset, position)
            if len(self._open) > SHARDS_KEPT:
                with suppress(KeyError):
                    self._open.popitem(last=False)
            return opened

    def __getstate__(self) -> dict[str, Any]:
        was = self.dataset
        dataset = Dataset(was.source, was.shards, "an index of keys is not sent to other processes", was.limits)
        return {**self.__dict__, "dataset": dataset, "_open": OrderedDict()}

    def __repr__(self) -> str:
        return f"<{len(self)} of {self.view} of {self.dataset.source!r}>"


class CataloguedSamples(Samples):
    """Those whose files are rows of a catalog."""

    @abstractmethod
    def first_rows(self, shard: OpenShard, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Of the first file of each one of a shard, -1 where it has none."""

    def _paths_in(self, shard: int, positions: NDArray[np.int64]) -> list[bytes]:
        if len(positions) < _MANY:
            return super()._paths_in(shard, positions)
        opened = self._shard(shard)
        rows = self.first_rows(opened, positions - self._starts[shard])
        if rows.min() < 0:
            return super()._paths_in(shard, positions)
        return opened.tables[self.view].paths(rows, os.fsencode(f"{self.view}/{opened.shard.name}/"))


class DatasetSamples(CataloguedSamples):
    """As `shards/` has them."""

    view = "shards"

    def __init__(self, dataset: Dataset) -> None:
        super().__init__(dataset, [shard.samples for shard in dataset.shards])

    def show(self, shard: OpenShard, position: int, number: int) -> Sample:
        table = shard.tables[self.view]
        return CataloguedSample(self.view, shard, table, table.files(number), number)

    def first_rows(self, shard: OpenShard, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        return shard.tables[self.view].first_files(numbers)

    def _path_at(self, position: int) -> bytes:
        """Without the sample, which takes as long to make."""
        number = bisect_right(self._starts, position) - 1
        shard = self._shard(number)
        table = shard.tables[self.view]
        rows = table.files(position - self._starts[number])
        path = table.path(rows[0]) if rows else REPORT
        return b"%b/%b/%b" % (self.view.encode(), os.fsencode(shard.shard.name), path)


class CataloguedSample(Sample):
    """One whose files are rows of a catalog, which is looked into when something is asked of it."""

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
        return self._shard.shard.name

    @property
    def key(self) -> str:
        # A sample of which nothing can be served has no files.
        return self._table.key(self._rows[0]) if self._rows else f"{self.ordinal:08d}"

    @property
    def rows(self) -> dict[str, int]:
        """By extension."""
        if self._named is None:
            self._named = {self.extension(row): row for row in self._rows}
        return self._named

    @property
    def duration(self) -> float:
        """Seconds of its first recording: by the catalog, else by its header. AttributeError if that tells nothing."""
        for row in self._rows:
            seconds = self._shard.seconds(self._table, row)
            if seconds is not None:
                return seconds
        return super().duration

    def extension(self, row: int) -> str:
        size = self._table.suffix[row]
        return self._table.ending(row, size - 1) if size else ""

    def file(self, extension: str) -> SampleFile:
        return CataloguedFile(self.view, self._shard, self._table, self.rows[extension])

    def __getitem__(self, extension: str) -> bytes:
        return self._shard.read(self._table, self.rows[extension])

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
        return self._shard.kind_of(self._table, self._row).field

    def path(self) -> str:
        return path_of(self._view, self._shard.shard.name, self._table, self._row)

    def content(self) -> Content:
        return self._shard.content(self._table, self._row)


def path_of(view: str, shard: str, table: Table, row: int) -> str:
    return f"{view}/{shard}/{os.fsdecode(table.path(row))}"
