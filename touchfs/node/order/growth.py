"""A dataset that has other shards than before: which ordinal each sample has now, and which samples are new or lost.

Shards are the same if their ids in the lists of both datasets are (`touchfs.store.shard_lists`). All this is arithmetic
on the shards' bounds.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from touchfs.core.errors import FormatError, UsageError
from touchfs.dataset import counted
from touchfs.node.core.saved import Saved
from touchfs.store.shard_lists import ALIKE, ShardList

GROWN = "grown"

# Of the data that an order is over: of several, one behind the other, if it is a chain's.
Fingerprints: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Grown:
    """A stage of an epoch: from here on it goes over another dataset.

    Before it is an order of `length` samples, in a `window` if not None, of the data with these `fingerprints`. Of what
    was left there, the `left` samples that still exist come first, and then the `new` ones. `lost` came in no pass.

    Of batches by length all this counts batches, and `samples` are those that the order before had.
    """

    length: int
    window: int | None
    fingerprints: Fingerprints
    left: int
    new: int
    lost: int
    samples: int | None = None

    @property
    def size(self) -> int:
        """How many positions there are after it."""
        return self.left + self.new

    def as_json(self) -> dict[str, Any]:
        """Return the fields as a state holds them."""
        (one, *others) = self.fingerprints
        fields = {name: getattr(self, name) for name in ("length", "window", "left", "new", "lost")}
        samples = {} if self.samples is None else {"samples": self.samples}
        return {"kind": GROWN, "fingerprint": [one, *others] if others else one, **fields, **samples}

    def __str__(self) -> str:
        what = "sample" if self.samples is None else "batch"
        text = f"{counted(self.left, what)} of the old order left, then {counted(self.new, f'new {what}')}"
        return f"{text}; {counted(self.lost, 'sample')} lost with their shards before they came" if self.lost else text


def read_grown(saved: Saved) -> Grown:
    """Read the stage from a state. Raises FormatError."""
    window, fingerprints = saved.get("window"), saved.get("fingerprint")
    if isinstance(fingerprints, str):
        fingerprints = [fingerprints]
    if not isinstance(fingerprints, list) or not fingerprints or any(type(each) is not str for each in fingerprints):
        raise FormatError(f"{saved.where} names no data: the state is damaged")
    return Grown(
        saved.integer("length"),
        None if window is None else max(saved.integer("window"), 1),
        tuple(fingerprints),
        saved.integer("left"),
        saved.integer("new"),
        saved.integer("lost"),
        saved.integer("samples") if saved.has("samples") else None,
    )


class Ranges:
    """Ranges of ordinals, `(first, count)`, none of them empty. What is in them has numbers from 0 on."""

    def __init__(self, ranges: Iterable[tuple[int, int]]) -> None:
        firsts, counts = np.array([*ranges], np.int64).reshape(-1, 2).T
        self._firsts, self._counts = firsts, counts
        self._before = np.cumsum(counts) - counts
        self._ascending = np.argsort(firsts)
        self.size = int(counts.sum())

    def ordinals(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the ordinals of these numbers, an array of the same shape `(n,)`."""
        which = np.searchsorted(self._before, numbers, side="right") - 1
        return np.asarray(self._firsts[which] + numbers - self._before[which], np.int64)

    def numbers(self, ordinals: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the numbers of these ordinals, -1 for one that is in no range."""
        if not self.size:
            return np.full(len(ordinals), -1, np.int64)
        place = np.searchsorted(self._firsts[self._ascending], ordinals, side="right") - 1
        which = self._ascending[np.maximum(place, 0)]
        inside = ordinals - self._firsts[which]
        return np.where((place >= 0) & (inside < self._counts[which]), self._before[which] + inside, -1)


class Move:
    """From the ordinals of one dataset to those of another one. Raises UsageError for lists that cannot be compared.

    Sample number i of `kept` is number i of `moved`. The samples in `lost` were in the first dataset alone, those in
    `new` are in the second alone.
    """

    def __init__(self, before: ShardList, now: ShardList) -> None:
        if before.what != now.what:
            raise UsageError(f"the state is over {before.what!r:.200}, and this is {now.what!r:.200}: choose the same")
        _refuse_alike(before, now)
        at: defaultdict[tuple[str, int], deque[int]] = defaultdict(deque)
        first = 0
        for name, count in now.shards:
            at[name.removesuffix(ALIKE), count].append(first)
            first += count
        kept, moved, lost = [], [], []
        first = 0
        for name, count in before.shards:
            if places := at[name.removesuffix(ALIKE), count]:
                kept.append((first, count))
                moved.append((places.popleft(), count))
            else:
                lost.append((first, count))
            first += count
        self.kept, self.moved, self.lost = Ranges(kept), Ranges(moved), Ranges(lost)
        left = sorted((place, count) for (_, count), places in at.items() for place in places)
        self.new = Ranges(left)


def _refuse_alike(before: ShardList, now: ShardList) -> None:
    """Raise UsageError where it is unknown which of several shards is one of before."""
    counts = [Counter(name.removesuffix(ALIKE) for name, _ in each.shards) for each in (before, now)]
    for name in {name.removesuffix(ALIKE) for each in (before, now) for name, _ in each.shards if name.endswith(ALIKE)}:
        old, new = (each[name] for each in counts)
        if old and new and old != new:
            raise UsageError(
                f"{new} shards have the name, size and number of samples that {old} had in the dataset of the state: "
                "give those that are new other names"
            )
