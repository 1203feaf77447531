"""Columns of the catalogs of tables, whose files are named by the ordinals of their rows: they follow from the kind and
the ordinal of each file, and are computed when they are read.

    name     `kinds`       the last component of `FileKind.name`; of a directory of a row, its row less one in 8 digits
    suffix   `kinds`       what follows the ordinal in `FileKind.name`
    parent   `ordinals`    the directory of the row, which is the ordinal and one; else row 0
    order    `kinds`       by ordinal, then by kind: kinds are numbered in the order of the view
    inline   `ordinals`    the ordinal, as the forms of rows pack it

Rows of files of samples are together, in the order of the samples.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

NO_SAMPLE = 2**32 - 1
# Rows of a table at most: their numbers have 32 bits.
ROWS_MAX = 2**32 - 1
# The rules by column.
DERIVED = {"name": "kinds", "suffix": "kinds", "parent": "ordinals", "order": "kinds", "inline": "ordinals"}


class Implied(NamedTuple):
    """A column to write that follows from a rule."""

    rule: str


class DerivedNumbers(Sequence[int]):
    """A column of numbers that is computed. Subclasses define `take`."""

    def __init__(self, rows: int) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return self._rows

    @overload
    def __getitem__(self, place: int) -> int: ...

    @overload
    def __getitem__(self, place: slice) -> list[int]: ...

    def __getitem__(self, place: int | slice) -> int | list[int]:
        if isinstance(place, slice):
            return self.take(np.arange(*place.indices(self._rows))).tolist()  # type: ignore[no-any-return]
        if not 0 <= place < self._rows:
            raise IndexError(place)
        return self.at(place)

    def at(self, place: int) -> int:
        return int(self.take(np.array([place]))[0])

    def take(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """The values at these places, shape `places.shape`."""
        raise NotImplementedError

    def __array__(self, dtype: Any = None, copy: Any = None) -> NDArray[Any]:
        return self.take(np.arange(self._rows)).astype(dtype or np.int64, copy=False)


class Parents(DerivedNumbers):
    """The directories of rows, by their ordinals."""

    def __init__(self, ordinals: Sequence[int]) -> None:
        super().__init__(len(ordinals))
        self._ordinals = ordinals

    def at(self, place: int) -> int:
        ordinal = self._ordinals[place]
        return 0 if ordinal == NO_SAMPLE else ordinal + 1

    def take(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        ordinals = np.asarray(self._ordinals)[places].astype(np.int64)
        return np.where(ordinals == NO_SAMPLE, 0, ordinals + 1)


class Suffixes(DerivedNumbers):
    """The sizes of suffixes by kind. `sizes` begins with that of directories."""

    def __init__(self, kinds: Sequence[int], sizes: Sequence[int]) -> None:
        super().__init__(len(kinds))
        self._kinds = kinds
        self._sizes = list(sizes)

    def at(self, place: int) -> int:
        return self._sizes[self._kinds[place]]

    def take(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        sizes: NDArray[np.int64] = np.array(self._sizes, np.int64)[np.asarray(self._kinds)[places]]
        return sizes


class KindOrder(DerivedNumbers):
    """The rows of files by ordinal and kind. Those that are of no sample come last."""

    def __init__(self, ordinals: Sequence[int], kinds: Sequence[int]) -> None:
        super().__init__(len(ordinals))
        self._ordinals, self._kinds = ordinals, kinds
        low, high = min(1, self._rows), self._rows
        while low < high:  # the first file of a sample: directories are before it
            middle = (low + high) // 2
            if ordinals[middle] == NO_SAMPLE and middle < self._rows - 1:
                low = middle + 1
            else:
                high = middle
        self._start = low
        self._stop = self._rows
        while self._stop > self._start and ordinals[self._stop - 1] == NO_SAMPLE:
            self._stop -= 1
        self._samples = ordinals[self._stop - 1] + 1 if self._stop > self._start else 0

    def rows_of(self, ordinal: int) -> list[int]:
        """The rows of the files of a sample, in order."""
        ordinals, start, stop = self._ordinals, self._start, self._stop
        if not 0 <= ordinal < self._samples:
            return []
        # Nearly always all samples have the same number of files.
        first = start + ordinal * (stop - start) // self._samples
        if ordinals[first] != ordinal or (first > start and ordinals[first - 1] == ordinal):
            first = bisect_left(ordinals, ordinal, start, stop)
        last = first
        while last < stop and ordinals[last] == ordinal:
            last += 1
        return sorted(range(first, last), key=self._kinds.__getitem__)

    def at(self, place: int) -> int:
        row, files = self._start + place, self._stop - self._start
        if place >= files:
            place -= files
            return place if place < self._start else self._stop + place - self._start
        ordinals, kinds = self._ordinals, self._kinds
        ordinal, first, last = ordinals[row], row, row + 1
        while first > self._start and ordinals[first - 1] == ordinal:
            first -= 1
        while last < self._stop and ordinals[last] == ordinal:
            last += 1
        return sorted(range(first, last), key=kinds.__getitem__)[row - first]

    def take(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        if len(places) < 64:
            return np.array([self.at(place) for place in places.tolist()], np.int64)
        if not len(places):
            return np.zeros(0, np.int64)
        # All files of the samples from the first place to the last one.
        files = self._stop - self._start
        low, high = int(places.min()), min(int(places.max()) + 1, files)
        outside = places >= files
        if low >= high:
            return np.array([self.at(place) for place in places.tolist()], np.int64)
        ordinals = np.asarray(self._ordinals)[self._start : self._stop]
        low = int(np.searchsorted(ordinals, ordinals[low], "left"))
        high = int(np.searchsorted(ordinals, ordinals[high - 1], "right"))
        kinds = np.asarray(self._kinds)[self._start + low : self._start + high]
        order = np.lexsort((kinds, ordinals[low:high])) + self._start + low
        rows: NDArray[np.int64] = order[np.where(outside, low, places) - low].astype(np.int64)
        rows[outside] = [self.at(place) for place in places[outside].tolist()]
        return rows
