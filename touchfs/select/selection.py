"""Selections from the samples of a view: by path, and by filter expression.

A selection is a list of positions, so it has random access and an exact length, like the samples that it selects from.
An expression uses facts of samples (`touchfs.select.facts`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from touchfs.catalog.table import DIRECTORY, NO_SAMPLE, Table
from touchfs.dataset import Dataset
from touchfs.dataset.interleaved import InterleavedSamples
from touchfs.dataset.sample import Sample
from touchfs.dataset.samples import DatasetSamples, Positions, Samples, as_positions
from touchfs.dataset.segments import MergedSamples, SegmentSamples
from touchfs.errors import UsageError
from touchfs.names import hex_digest
from touchfs.select.expression import parse_where
from touchfs.select.facts import SampleFacts
from touchfs.select.survivors import survivors
from touchfs.view.plan import parse_plan


class Selection:
    """The samples at ascending `positions` of `samples`. `description` identifies the selection in the fingerprint."""

    def __init__(self, samples: AnySamples, positions: Sequence[int] | Any, description: str) -> None:
        self.samples = samples
        self.positions = positions
        self._description = description

    @cached_property
    def fingerprint(self) -> str:
        """A string that differs if the selected data differs, wherever it is stored."""
        return self._hash(self.samples.fingerprint)

    @property
    def identity(self) -> str:
        """A string that differs if the files of the dataset or the selection differ."""
        return self._hash(self.samples.identity)

    def _hash(self, whole: str) -> str:
        text = f"{whole}\0{self._description}".encode(errors="surrogatepass")
        return hex_digest(text)

    @property
    def view(self) -> str:
        """The name of the view that the samples are of."""
        return self.samples.view

    @property
    def dataset(self) -> Dataset:
        """The dataset that the samples are of."""
        return self.samples.dataset

    def __len__(self) -> int:
        return len(self.positions)

    def __getitem__(self, position: int) -> Sample:
        return self.samples[int(self.positions[position])]

    def read(self, extension: str, positions: Positions) -> list[bytes]:
        """Read the file with an extension of each sample at `positions` of the selection, as `Samples.read`."""
        chosen = as_positions(positions, len(self))
        if isinstance(self.positions, range):
            return self.samples.read(extension, chosen * self.positions.step + self.positions.start)
        return self.samples.read(extension, np.asarray(self.positions)[chosen])

    def paths(self, positions: Positions) -> list[bytes]:
        """Return the path of each sample's first file, relative to the root of the tree."""
        if isinstance(self.positions, np.ndarray):
            return self.samples.paths(self.positions[positions])
        return self.samples.paths([self.positions[position] for position in positions])


AnySamples = Samples | Selection


class Selector:
    """Selects the samples of a dataset for the `source` and `where` of a spec. Caches the latest selections.

    `survivors_path` is the directory of survivor indexes; `use_plan` is called with each plan under `merged/`.
    """

    def __init__(
        self, dataset: Dataset, survivors_path: str, use_plan: Callable[[str], None] = lambda plan: None
    ) -> None:
        self.dataset = dataset
        self._use_plan = use_plan
        self._survivors_path = survivors_path
        self._cache: dict[tuple[str, str | None], AnySamples] = {}

    def select(self, source: str, where: str | None) -> AnySamples:
        """Return the samples below a path of the tree that match an expression. Raises UsageError for unknown ones."""
        key = source, where
        if key not in self._cache:
            whole = self._below(source) if where is None else self.select(source, None)
            self._cache[key] = whole if where is None else self.filtered(whole, where)
            if len(self._cache) > _CACHE_SIZE:
                del self._cache[next(iter(self._cache))]
        return self._cache[key]

    def filtered(self, samples: AnySamples, where: str) -> Selection:
        """Return the samples for which an expression is true. Raises UsageError for a bad expression."""
        expression = parse_where(where)
        names = {path[0] for path in expression.fields}
        kept = survivors(SampleFacts(samples, names), expression, self._survivors_path)
        return Selection(samples, kept.positions, f"where {expression} {kept.digest.hex()}")

    def _below(self, source: str) -> AnySamples:
        """Return the samples of `samples`, `segments`, `interleaved` or `merged/PLAN`, or of a directory below one."""
        view, _, path = source.partition("/")
        if view == "merged":
            plan, _, path = path.partition("/")
            canonical = parse_plan(plan)
            if plan != str(canonical):
                return self.select("/".join(filter(None, ("merged", str(canonical), path))), None)
            if path:
                return self._of_directory(self.select(f"merged/{plan}", None), path)
            self._use_plan(plan)
            return MergedSamples(self.dataset, canonical)
        if view not in _VIEWS:
            raise UsageError(
                f"there is no {source!r} to select: choose samples, segments, interleaved, merged/PLAN or a path "
                "below one"
            )
        if path:
            return self._of_directory(self.select(view, None), path)
        return _VIEWS[view](self.dataset)

    def _of_directory(self, samples: AnySamples, path: str) -> AnySamples:
        name, *below = path.strip("/").split("/")
        dataset = samples.dataset
        shard = dataset.by_name.get(name.encode(errors="surrogateescape"))
        positions: Any
        if shard is None and samples.view == "shards" and (split := dataset.in_directory(name)):
            if below:
                return self._of_directory(samples, "/".join(below))
            positions = np.concatenate([np.arange(*_range_of(samples, each)) for each in split])
            return Selection(samples, positions, f"below {name}")
        if shard is None:
            raise UsageError(f"there is no shard {name!r} to select")
        if not below:
            positions = range(*_range_of(samples, shard))
        else:
            # The directories of merged segments are those of their segments.
            tables = dataset.catalog(shard).tables
            table = tables[samples.view if samples.view in tables else "segments"]
            ordinals = _ordinals_below(table, below, path)
            positions = np.fromiter(
                (
                    position
                    for ordinal in ordinals
                    for position in range(
                        position_at(samples, (shard, ordinal, 0)), position_at(samples, (shard, ordinal + 1, 0))
                    )
                ),
                np.int64,
            )
        return Selection(samples, positions, f"below {path.strip('/')}")


def source_of(view: str) -> str:
    """Return how specs and item tokens name a view: `samples` is the view `shards`."""
    return "samples" if view == "shards" else view


_CACHE_SIZE = 64
_VIEWS: Mapping[str, Callable[[Dataset], Samples]] = {
    "samples": DatasetSamples,
    "shards": DatasetSamples,
    "segments": SegmentSamples,
    "interleaved": InterleavedSamples,
}


def _range_of(samples: AnySamples, shard: int) -> tuple[int, int]:
    """The positions of the samples of a shard: the first one, and that after the last one."""
    return position_at(samples, (shard, 0, 0)), position_at(samples, (shard + 1, 0, 0))


def position_at(samples: AnySamples, key: tuple[int, int, int]) -> int:
    """Return the first position whose sample has at least this key: (number of the shard, ordinal, segment)."""
    shards = samples.dataset.by_name

    def key_at(position: int) -> tuple[int, int, int]:
        sample = samples[position]
        return shards[sample.shard.encode(errors="surrogateescape")], sample.ordinal, sample.number

    return bisect_left(range(len(samples)), key, key=key_at)


def _ordinals_below(table: Table, below: Sequence[str], path: str) -> list[int]:
    row = 0
    for name in below:
        found = table.find(row, name.encode(errors="surrogateescape")) if table.kind[row] == DIRECTORY else None
        if found is None:
            raise UsageError(f"there is no {path!r} to select")
        row = found
    ordinals: set[int] = set()
    pending = [row]
    while pending:
        row = pending.pop()
        if table.kind[row] == DIRECTORY:
            pending += table.children(row)
        elif table.ordinal[row] != NO_SAMPLE:
            ordinals.add(table.ordinal[row])
    return sorted(ordinals)
