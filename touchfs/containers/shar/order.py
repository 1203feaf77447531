"""Match the values of a field of a Lhotse Shar to its cuts. Every value has the id of its cut.

While the values come in the order of the cuts, each belongs to the cut at its position, as in Lhotse. From the first
value on that is out of order, the n-th value with an id belongs to the n-th cut with that id. If a field has more or
fewer values with an id than there are cuts with it, it is unknown which one is missing, so all cuts with that id get an
error.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from touchfs.containers.lines.reader import read_line
from touchfs.core.errors import FormatError
from touchfs.format.lhotse import parse_cut
from touchfs.source.store import StoredFile


class CutIds:
    """The ids of a shard's cuts in order; None for a line without an id. `lines` has offsets and sizes.

    Ids are read only when they are needed. For cuts that were seen in order, 8 bytes each are kept to find repeated
    ids. A line of more than `limit` bytes is not parsed.
    """

    def __init__(self, file: StoredFile, lines: NDArray[np.int64], limit: int) -> None:
        self._file = file
        self._lines = lines
        self._limit = limit
        self._hashes = array("q")

    def see(self, ordinal: int, key: str | None) -> None:
        """Remember the id of a cut that was read, if all cuts before it were seen."""
        if ordinal == len(self._hashes):
            self._hashes.append(hash(key))

    @cached_property
    def all(self) -> list[str | None]:
        """The ids of all cuts. Reads every line."""
        return [self._read(ordinal) for ordinal in range(len(self._lines))]

    def repeated(self) -> Iterator[tuple[int, str]]:
        """The ordinal and id of each cut whose id an earlier cut already has."""
        seen = set()
        for ordinal in self._suspects():
            key = self._read(ordinal)
            if key is not None and key in seen:
                yield ordinal, key
            seen.add(key)

    def _suspects(self) -> Iterable[int]:
        if len(self._hashes) < len(self._lines):
            return range(len(self._lines))
        _, which, counts = np.unique(np.frombuffer(self._hashes, np.int64), return_inverse=True, return_counts=True)
        return [int(ordinal) for ordinal in np.flatnonzero(counts[which] > 1)]

    def _read(self, ordinal: int) -> str | None:
        offset, size = self._lines[ordinal].tolist()
        parsed, _ = read_line(self._file, offset, size, self._limit)
        return parse_cut(parsed).key


class FieldOrder:
    """Positions in a field's file of the values of cuts. `keys` are the ids of the file's values, in order."""

    def __init__(self, source: str, keys: Sequence[str | None], cuts: CutIds) -> None:
        self._source = source
        self._keys = keys
        self._cuts = cuts
        self._in_step = 0  # this many values are known to be at the positions of their cuts

    def find(self, ordinal: int, key: str) -> int:
        """The position of the value of the cut with this id and ordinal. Raises FormatError if there is none."""
        if ordinal == self._in_step < len(self._keys) and self._keys[ordinal] == key:
            self._in_step += 1
        return ordinal if ordinal < self._in_step else self._find_by_id(ordinal, key)

    def _find_by_id(self, ordinal: int, key: str) -> int:
        positions, ordinals = (places.get(key, []) for places in self._rest)
        if ordinal < self._in_step:  # known only since `_rest` was computed
            return ordinal
        if not positions:
            raise FormatError(f"{self._source} has nothing for this cut")
        if len(positions) != len(ordinals):
            counts = f"{len(positions)} for the {len(ordinals)} cuts with this id"
            raise FormatError(f"{self._source} has {counts}: it is unknown which belongs to which cut")
        return positions[ordinals.index(ordinal)]

    @cached_property
    def _rest(self) -> tuple[dict[str | None, list[int]], dict[str | None, list[int]]]:
        """Positions of values, and ordinals of cuts, by id: only those behind the last value that is in order."""
        ids, keys = self._cuts.all, self._keys
        while self._in_step < min(len(ids), len(keys)) and ids[self._in_step] == keys[self._in_step]:
            self._in_step += 1
        return _places(keys, self._in_step), _places(ids, self._in_step)


def _places(keys: Sequence[str | None], first: int) -> dict[str | None, list[int]]:
    places: dict[str | None, list[int]] = defaultdict(list)
    for place in range(first, len(keys)):
        places[keys[place]].append(place)
    return dict(places)
