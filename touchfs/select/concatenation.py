"""Samples of several datasets, one after the other, and what `touchfs.open` asks of samples of one or of several."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import accumulate
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from touchfs.core.errors import UsageError
from touchfs.core.names import hex_digest
from touchfs.dataset import Dataset
from touchfs.dataset.sample import Sample
from touchfs.dataset.samples import Positions, Samples, as_positions
from touchfs.select.ids.names import open_file
from touchfs.select.selection import AnySamples, Selection, position_of
from touchfs.select.selector import Selector
from touchfs.store.shard_lists import ShardList, joined


class Concatenation:
    """The samples of `parts`, one after the other, or those at some `positions` of these.

    `description` identifies these positions in the fingerprint.
    """

    def __init__(
        self, parts: Sequence[AnySamples], positions: NDArray[np.int64] | None = None, description: str = ""
    ) -> None:
        self.parts = tuple(parts)
        self.positions = positions
        self._description = description
        self._bounds = np.array([*accumulate(map(len, self.parts), initial=0)], np.int64)

    @cached_property
    def fingerprint(self) -> str:
        """A string that differs if the samples, or their positions, differ."""
        facts = [*(part.fingerprint for part in self.parts), self._description]
        return hex_digest("\0".join(facts).encode(errors="surrogatepass"))

    def shard_list(self) -> ShardList | None:
        """The shards of all parts, each as one of its part; None of samples chosen by position."""
        lists = [part.shard_list() for part in self.parts]
        known = [each for each in lists if each is not None]
        if self.positions is not None or len(known) < len(lists):
            return None
        return joined(known, known[0].what if known else "")

    @property
    def view(self) -> str:
        """The name of the view that all parts are of; `shards` if they are of several."""
        views = {part.view for part in self.parts}
        return views.pop() if len(views) == 1 else "shards"

    def __len__(self) -> int:
        return int(self._bounds[-1]) if self.positions is None else len(self.positions)

    def __getitem__(self, position: int) -> Sample:
        if not 0 <= position < len(self):
            raise IndexError(f"sample {position} of {len(self)}")
        place = position if self.positions is None else int(self.positions[position])
        number = self._part_of(place)
        return self.parts[number][place - int(self._bounds[number])]

    def read(self, extension: str, positions: Positions) -> list[bytes]:
        """Read the file with an extension of many samples, as `Samples.read`."""
        found = [b""] * len(positions)
        for part, chosen, places in self._by_part(as_positions(positions, len(self))):
            for place, data in zip(places, part.read(extension, chosen), strict=True):
                found[place] = data
        return found

    def lengths(self, measure: str) -> NDArray[np.int64]:
        """The length of each sample by the index, as `Samples.lengths`."""
        found = np.concatenate([part.lengths(measure) for part in self.parts])
        return found if self.positions is None else found[self.positions]

    def paths(self, positions: Positions) -> list[bytes]:
        """The path of each sample's first file, relative to the root of the tree of its dataset."""
        found = [b""] * len(positions)
        for part, chosen, places in self._by_part(as_positions(positions, len(self))):
            for place, path in zip(places, part.paths(chosen), strict=True):
                found[place] = path
        return found

    def _by_part(self, positions: NDArray[np.int64]) -> Iterator[tuple[AnySamples, NDArray[np.int64], list[int]]]:
        """Each part with the positions in it that are asked for, and where among all these were asked for."""
        if self.positions is not None:
            positions = self.positions[positions]
        numbers = np.searchsorted(self._bounds, positions, "right") - 1
        for number in np.unique(numbers).tolist():
            places = np.flatnonzero(numbers == number)
            yield self.parts[number], positions[places] - self._bounds[number], places.tolist()

    def _part_of(self, place: int) -> int:
        return int(np.searchsorted(self._bounds, place, "right")) - 1

    def find(self, key: str) -> int | None:
        """The position of the first sample with a key."""
        found = [
            int(first) + position
            for first, part in zip(self._bounds[:-1], self.parts, strict=True)
            if (position := find(part, key)) is not None
        ]
        if self.positions is None:
            return min(found, default=None)
        places = np.flatnonzero(np.isin(self.positions, found))
        return int(places[0]) if len(places) else None

    def chosen(self, ordinals: NDArray[np.int64], description: str) -> Concatenation:
        """The samples at some positions of these."""
        positions = ordinals if self.positions is None else self.positions[ordinals]
        return Concatenation(self.parts, positions, f"{self._description}\0{description}")

    def filtered(self, where: str, directory: str) -> Concatenation:
        """The samples for which an expression holds. Each part needs its fields."""
        parts = [_filtered(part, where, directory) for part in self.parts]
        if self.positions is None:
            return Concatenation(parts)
        starts = zip(self._bounds[:-1].tolist(), parts, strict=True)
        survivors = np.concatenate([np.asarray(part.positions, np.int64) + start for start, part in starts])
        kept = np.flatnonzero(np.isin(self.positions, survivors))
        digests = "\0".join(part.fingerprint for part in parts)
        return self.chosen(kept, f"where {digests}")


SetSamples: TypeAlias = AnySamples | Concatenation


def concatenated(first: SetSamples, second: SetSamples) -> Concatenation:
    """The samples of both. Raises TypeError for chosen ones of a concatenation."""
    parts: list[AnySamples] = []
    for each in (first, second):
        if not isinstance(each, Concatenation):
            parts.append(each)
        elif each.positions is None:
            parts += each.parts
        else:
            raise TypeError("add the sets first, and then choose among their items")
    return Concatenation(parts)


def chosen(samples: SetSamples, ordinals: NDArray[np.int64], description: str) -> SetSamples:
    """The samples at some positions, in this order. `description` identifies them in the fingerprint."""
    if isinstance(samples, Concatenation):
        return samples.chosen(ordinals, description)
    return Selection(samples, ordinals, description)


def filtered(samples: SetSamples, where: str, directory: str) -> SetSamples:
    """The samples for which an expression holds. `directory` is that of survivor indexes."""
    if isinstance(samples, Concatenation):
        return samples.filtered(where, directory)
    return Selector(samples.dataset, directory, open_ids=open_file).filtered(samples, where)


def find(samples: SetSamples, key: str) -> int | None:
    """The position of the first sample, or segment, with a key; None if there is none."""
    if isinstance(samples, Concatenation):
        return samples.find(key)
    base: AnySamples = samples
    while isinstance(base, Selection):
        base = base.samples
    for shard, ordinal in base.places_of(key):
        position = position_of(samples, shard, ordinal)
        if position is not None:
            return position
    return None


def datasets_of(samples: SetSamples) -> list[Dataset]:
    """The datasets that the samples are of, each once."""
    parts: Sequence[Any] = samples.parts if isinstance(samples, Concatenation) else [samples]
    return [*{id(part.dataset): part.dataset for part in parts}.values()]


def close(samples: SetSamples) -> None:
    """Close the files of samples that are open. They are opened again when they are read."""
    if isinstance(samples, Samples):
        samples.close()
        return
    for each in samples.parts if isinstance(samples, Concatenation) else [samples.samples]:
        close(each)


def _filtered(part: AnySamples, where: str, directory: str) -> Selection:
    try:
        return Selector(part.dataset, directory, open_ids=open_file).filtered(part, where)
    except UsageError as error:
        raise error.at(part.dataset.source) from error
