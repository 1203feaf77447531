"""Units: batches of one rank, of samples whose lengths are known, formed inside of spans of an order.

*Bucketed*, a unit has samples of like length, and is padded to the longest: count times longest is at most the limit.
*Packed*, the samples of a unit are put one behind the other, and their sum is at most the limit: each goes into the
fullest unit of the span that has room for it ("best fit").

Units come in the order of one of their samples: the shortest, or the first one that was packed. So they are mixed as
the order is. In a unit samples are in order, too. All of this follows from the lengths in one span alone.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from touchfs.core.errors import UsageError
from touchfs.core.measure import SECONDS, TOKENS, UNKNOWN, spelled, unknown_length
from touchfs.core.token import State
from touchfs.node.order.partition import check_count

# Samples in a span: to form its units takes 10 ms.
SPAN = 1 << 13

# Of each measure: the argument with the limit, and a filter by it.
_WORDS = {SECONDS: ("max_duration", "duration <= {}"), TOKENS: ("max_tokens", "size.npy <= BYTES")}

Unit: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class UnitRule:
    """How units are formed of `span` samples at a time: `most` is the limit of each, in parts of `measure`."""

    measure: str
    most: int
    pack: bool
    span: int = SPAN

    def __post_init__(self) -> None:
        check_count(self.span, "span")

    def units(self, lengths: NDArray[np.int64]) -> list[Unit]:
        """Return the units of a span: the places in it of each one's samples, given the lengths `(n,)` of all."""
        return self._packed(lengths) if self.pack else self._bucketed(lengths)

    def wrong(self, lengths: NDArray[np.int64]) -> int | None:
        """Return the place of the first sample that no unit can have, if there is one."""
        places = np.flatnonzero((lengths == UNKNOWN) | (lengths > self.most))
        return int(places[0]) if len(places) else None

    def refusal(self, what: str, length: int) -> UsageError:
        """Return the error of a sample that no unit can have: `what` says which, and `length` is its length."""
        measure, most = self.measure, spelled(self.most, self.measure)
        limit, filter_of_it = _WORDS[measure]
        if length == UNKNOWN:
            return UsageError(f"{what} {unknown_length(measure)}")
        return UsageError(
            f"{what} has {spelled(length, measure)} {measure}, and a batch at most {most}: give a larger {limit}, or "
            f"leave such samples out with where {filter_of_it.format(most)}"
        )

    def config(self) -> State:
        """Return what a state must agree with."""
        return {"measure": self.measure, "most": self.most, "pack": self.pack, "span": self.span}

    def _bucketed(self, lengths: NDArray[np.int64]) -> list[Unit]:
        by_length = np.argsort(lengths, kind="stable")
        ascending: list[int] = lengths[by_length].tolist()
        firsts = [0]

        def padded(count: int) -> int:
            return count * ascending[firsts[-1] + count - 1]

        while (left := len(ascending) - firsts[-1]) and (
            count := bisect_right(range(1, left + 1), self.most, key=padded)
        ) < left:
            firsts.append(firsts[-1] + count)
        units = np.split(by_length, firsts[1:]) if len(lengths) else []
        units.sort(key=lambda unit: int(unit[0]))
        return [np.sort(unit) for unit in units]

    def _packed(self, lengths: NDArray[np.int64]) -> list[Unit]:
        units: list[list[int]] = []
        # What is in each unit that has room, and its number.
        filled: list[tuple[int, int]] = []
        least = int(lengths.min()) if len(lengths) else 0
        for place, length in enumerate(lengths.tolist()):
            fullest = bisect_right(filled, (self.most - length, len(units))) - 1
            if fullest >= 0:
                before, unit = filled.pop(fullest)
                units[unit].append(place)
            else:
                before, unit = 0, len(units)
                units.append([place])
            if before + length + least <= self.most:
                insort(filled, (before + length, unit))
        return [np.array(unit, np.int64) for unit in units]
