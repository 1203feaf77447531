"""Which of an epoch's positions belong to which rank.

`stride`    rank r takes positions r, r + world size, …: ranks in lock step go through the epoch together
`block`     rank r takes the r-th contiguous run: neighbours in a file stay on one rank

Positions need not divide evenly, so what happens then is said: `keep` gives some ranks one sample more than others,
`drop` leaves the last positions out, `pad` goes on from the first ones until all ranks have as many.
With workers below the ranks, each worker is a rank of its own (`for_worker`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from touchfs.errors import UsageError

KINDS = ("stride", "block")
TAILS = ("keep", "drop", "pad")
# A bound for states from elsewhere; no cluster is that large.
MOST_RANKS = 1 << 20


@dataclass(frozen=True, slots=True)
class Partition:
    rank: int = 0
    world_size: int = 1
    kind: str = "stride"
    tail: str = "keep"

    def __post_init__(self) -> None:
        if not 0 < self.world_size <= MOST_RANKS or not 0 <= self.rank < self.world_size:
            raise UsageError(f"there is no rank {self.rank} of {self.world_size}: ranks are 0 to world_size - 1")
        if self.kind not in KINDS:
            raise UsageError(f"no partition {self.kind!r}: it is one of {', '.join(KINDS)}")
        if self.tail not in TAILS:
            raise UsageError(f"no tail {self.tail!r}: it is one of {', '.join(TAILS)}")

    def for_worker(self, worker: int, workers: int) -> Partition:
        """The part of one of a rank's workers."""
        if not 0 <= worker < workers:
            raise UsageError(f"there is no worker {worker} of {workers}: workers are 0 to workers - 1")
        return Partition(self.rank * workers + worker, self.world_size * workers, self.kind, self.tail)

    def count(self, size: int) -> int:
        """How many of `size` positions this rank goes through."""
        if self.tail == "drop":
            return size // self.world_size
        if self.tail == "pad":
            return -(-size // self.world_size)
        if self.kind == "block":
            return (self.rank + 1) * size // self.world_size - self.first(size)
        return (size - self.rank + self.world_size - 1) // self.world_size

    def first(self, size: int) -> int:
        if self.kind == "stride":
            return self.rank
        return self.rank * size // self.world_size if self.tail == "keep" else self.rank * self.count(size)

    def positions(self, own: NDArray[np.int64], size: int) -> NDArray[np.int64]:
        """Where the own 0th, 1st, … of this rank are among all."""
        positions = self.first(size) + own * (self.world_size if self.kind == "stride" else 1)
        return positions % size if self.tail == "pad" else positions

    def own(self, position: int, size: int) -> int | None:
        """The inverse, or None where the position is another rank's."""
        own, beside = divmod(position - self.first(size), self.world_size if self.kind == "stride" else 1)
        return own if not beside and 0 <= own < self.count(size) else None

    def as_json(self) -> dict[str, Any]:
        return {"rank": self.rank, "world_size": self.world_size, "kind": self.kind, "tail": self.tail}
