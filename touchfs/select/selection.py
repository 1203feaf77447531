"""Selections from the samples of a view: by path, and by filter expression.

A selection is a list of positions, so it has random access and an exact length, like the samples that it selects from.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from touchfs.core.names import hex_digest
from touchfs.core.packed_bytes import PackedBytes
from touchfs.dataset import Dataset
from touchfs.dataset.sample import Sample
from touchfs.dataset.samples import Positions, Samples, as_positions
from touchfs.store.shard_lists import ALIKE, ShardList


class Selection:
    """The samples at ascending `positions` of `samples`. `description` identifies the selection in the fingerprint.

    `rule` says how each shard's samples were chosen, without looking at other shards; None if they were not.
    """

    def __init__(
        self, samples: AnySamples, positions: Sequence[int] | Any, description: str, rule: str | None = None
    ) -> None:
        self.samples = samples
        self.positions = positions
        self._description = description
        self._rule = rule

    @cached_property
    def fingerprint(self) -> str:
        """A string that differs if the selected data differs, wherever it is stored."""
        return self._hash(self.samples.fingerprint)

    def shard_list(self) -> ShardList | None:
        """The shards that have selected samples, each with its number of them; None of those chosen by position."""
        whole = None if self._rule is None else self.samples.shard_list()
        if whole is None:
            return None
        positions, shards, start, first = np.asarray(self.positions, np.int64), [], 0, 0
        for name, count in whole.shards:
            end = int(np.searchsorted(positions, start + count))
            if 0 < end - first < count:
                chosen = (positions[first:end] - start).astype("<i8").tobytes()
                name = hex_digest(name.encode() + chosen) + ALIKE * name.endswith(ALIKE)
            if end > first:
                shards.append((name, end - first))
            start, first = start + count, end
        return ShardList(f"{whole.what} {self._rule}", tuple(shards))

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

    def keys(self, positions: NDArray[np.int64]) -> Iterator[PackedBytes]:
        """Yield the keys of these samples, as `Samples.keys`."""
        return self.samples.keys(np.asarray(self.positions, np.int64)[positions])

    def lengths(self, measure: str) -> NDArray[np.int64]:
        """The length of each sample by the index, as `Samples.lengths`."""
        return self.samples.lengths(measure)[np.asarray(self.positions, np.int64)]

    def paths(self, positions: Positions) -> list[bytes]:
        """Return the path of each sample's first file, relative to the root of the tree."""
        if isinstance(self.positions, np.ndarray):
            return self.samples.paths(self.positions[positions])
        return self.samples.paths([self.positions[position] for position in positions])


AnySamples = Samples | Selection


def source_of(view: str) -> str:
    """Return how specs and item tokens name a view: `samples` is the view `shards`."""
    return "samples" if view == "shards" else view


def base_of(samples: AnySamples) -> tuple[Samples, NDArray[np.int64]]:
    """The samples that a selection is of in the end, and the positions in them of those that are selected."""
    if not isinstance(samples, Selection):
        return samples, np.arange(len(samples), dtype=np.int64)
    base, positions = base_of(samples.samples)
    return base, positions[np.asarray(samples.positions, np.int64)]


def position_at(samples: AnySamples, key: tuple[int, int, int]) -> int:
    """Return the first position whose sample has at least this key: (number of the shard, ordinal, segment)."""
    shards = samples.dataset.by_name

    def key_at(position: int) -> tuple[int, int, int]:
        sample = samples[position]
        return shards[sample.shard.encode(errors="surrogateescape")], sample.ordinal, sample.number

    return bisect_left(range(len(samples)), key, key=key_at)


def position_of(samples: AnySamples, shard: int, ordinal: int) -> int | None:
    """The position of a sample of a shard, or of its first segment; None if `samples` do not have it."""
    chain = []
    while isinstance(samples, Selection):
        chain.append(samples)
        samples = samples.samples
    for position in range(position_at(samples, (shard, ordinal, 0)), position_at(samples, (shard, ordinal + 1, 0))):
        with suppress(ValueError):
            for selected in reversed(chain):
                position = _index(selected.positions, position)
            return position
    return None


def _index(positions: Any, position: int) -> int:
    """The index of a position in an array of positions, ascending or not. Raises ValueError if it is absent."""
    if isinstance(positions, range):
        return positions.index(position)
    place = int(np.searchsorted(positions, position))
    if place < len(positions) and positions[place] == position:
        return place
    found = np.flatnonzero(positions == position)
    if not len(found):
        raise ValueError(position)
    return int(found[0])
