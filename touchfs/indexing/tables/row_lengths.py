"""Rates and lengths of the recordings in the rows of a table: what `touchfs index --full` adds.

The recording of a row is the file that can be cut and that `recordings_among` prefers: that of `slices/`.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from math import fsum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from touchfs.form.recordings import can_cut
from touchfs.indexing.recording_lengths import Measurement, measure_field, recordings_of
from touchfs.registry.contents import FieldContents
from touchfs.tables.rows.rows import RowBatch


class Variant(NamedTuple):
    """The members of a `FileKind` that measuring fills."""

    note: str = ""
    rate: int = 0
    channels: int = 0


class RowLengths:
    """The recordings that were measured. `add` gets the batches of a table in order."""

    def __init__(self, contents: FieldContents) -> None:
        self._contents = contents
        self._variants: dict[Variant, int] = {}
        # For each measured file: its row, the place of its column, its variant, and the length of its recording.
        self._rows, self._places, self._numbers, self._frames = array("q"), array("q"), array("q"), array("q")
        self._seconds = array("d")
        self.unmeasured = 0

    @property
    def timed(self) -> int:
        """The number of recordings of known length."""
        return len(self._seconds)

    @property
    def seconds(self) -> float:
        return fsum(self._seconds)

    def add(self, batch: RowBatch) -> Iterator[tuple[int, str]]:
        """Measure the recordings of a batch. Yields ordinals and problems. Raises ChangedError."""
        places = {
            column.name: place
            for place, column in enumerate(batch.columns)
            if any(can_cut(kind.form, kind.extension) for kind in column.kinds)
        }
        for row in range(batch.rows) if places else ():
            ordinal = batch.first + row
            fields = [batch.columns[place].field(row, ordinal) for place in places.values()]
            for field in recordings_of(field for field in fields if field is not None):
                found = measure_field(field, self._contents)
                self._keep(ordinal, places[field.name], found)
                if found.problem:
                    yield ordinal, found.problem
                if not found.note:
                    break

    def _keep(self, ordinal: int, place: int, found: Measurement) -> None:
        audio = found.audio
        if audio is None and not found.note:
            self.unmeasured += 1
            return
        variant = Variant(found.note) if audio is None else Variant("", audio.rate, audio.channels)
        self._rows.append(ordinal)
        self._places.append(place)
        self._numbers.append(self._variants.setdefault(variant, len(self._variants)))
        self._frames.append(0 if audio is None else audio.frames)
        if audio is not None:
            self._seconds.append(audio.frames / audio.rate)

    def frames(self, shape: tuple[int, ...]) -> NDArray[np.int64]:
        """The lengths of the recordings of a table of this shape (rows, columns); 0 for all other files."""
        frames = np.zeros(shape, np.int64)
        frames[np.asarray(self._rows), np.asarray(self._places)] = self._frames
        return frames

    def variants(self) -> Iterator[tuple[Variant, NDArray[np.int64], NDArray[np.int64]]]:
        """Each variant with the rows and the places of its files."""
        rows, places, numbers = map(np.asarray, (self._rows, self._places, self._numbers))
        # Sorted once: data may have another rate in each row.
        order = np.argsort(numbers, kind="stable")
        ends = np.searchsorted(numbers[order], np.arange(1, len(self._variants)))
        for variant, chosen in zip(self._variants, np.split(order, ends), strict=False):
            yield variant, rows[chosen], places[chosen]
