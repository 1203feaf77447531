"""Segments in little memory: a day of speech has 250,000 words, and as objects each takes 500 bytes."""

from __future__ import annotations

import marshal
from array import array
from collections.abc import Sequence
from typing import overload

from touchfs.segments.segment import Segment


class PackedSegments(Sequence[Segment]):
    """Segments that `Segment.of` makes of their fields, which are strings and numbers. Each access makes a new object.

    The packed bytes never leave this process.
    """

    __slots__ = ("_ends", "_packed")

    def __init__(self) -> None:
        self._packed = bytearray()
        self._ends = array("Q", [0])

    def append(self, segment: Segment) -> None:
        """Add a segment."""
        self._packed += marshal.dumps(segment.fields)
        self._ends.append(len(self._packed))

    def __len__(self) -> int:
        return len(self._ends) - 1

    @overload
    def __getitem__(self, place: int) -> Segment: ...

    @overload
    def __getitem__(self, place: slice) -> list[Segment]: ...

    def __getitem__(self, place: int | slice) -> Segment | list[Segment]:
        if isinstance(place, slice):
            return [self[each] for each in range(*place.indices(len(self)))]
        if not -len(self) <= place < len(self):
            raise IndexError(f"segment {place} of {len(self)}")
        place %= len(self)
        return Segment.of(marshal.loads(self._packed[self._ends[place] : self._ends[place + 1]]))
