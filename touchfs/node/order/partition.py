"""The partition of an epoch's positions among ranks.

`stride`    rank r takes positions r, r + world size, …: ranks in lock step move through the epoch together
`block`     rank r takes the r-th contiguous run: neighbours in a file stay on one rank

If the positions do not divide evenly, the `tail` decides: `keep` gives some ranks one sample more than others, `drop`
leaves out the last positions, `pad` repeats the first positions until all ranks have equally many.
Workers of a rank are ranks of their own (`for_worker`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from touchfs.core.errors import UsageError

KINDS = ("stride", "block")
KEEP = "keep"
TAILS = (KEEP, "drop", "pad")
# An upper bound for states from untrusted sources; no cluster is that large.
MOST_RANKS = 1 << 20


@dataclass(frozen=True, slots=True)
class Partition:
    """The part of rank `rank` (from 0) of `world_size` ranks, of `kind` "stride" or "block".

    `tail` is "keep", "drop" or "pad". Raises UsageError for any other value.
    """

    rank: int = 0
    world_size: int = 1
    kind: str = "stride"
    tail: str = KEEP

    def __post_init__(self) -> None:
        if not 0 < self.world_size <= MOST_RANKS or not 0 <= self.rank < self.world_size:
            raise UsageError(f"there is no rank {self.rank} of {self.world_size}: ranks are 0 to world_size - 1")
        if self.kind not in KINDS:
            raise UsageError(f"no partition {self.kind!r}: it is one of {', '.join(KINDS)}")
        if self.tail not in TAILS:
            raise UsageError(f"no tail {self.tail!r}: it is one of {', '.join(TAILS)}")

    def for_worker(self, worker: int, workers: int) -> Partition:
        """Return the part of one of this rank's workers. Raises UsageError if there is no such worker."""
        if not 0 <= worker < workers:
            raise UsageError(f"there is no worker {worker} of {workers}: workers are 0 to workers - 1")
        return Partition(self.rank * workers + worker, self.world_size * workers, self.kind, self.tail)

    def count(self, size: int) -> int:
        """Return how many of `size` positions this rank visits."""
        if self.tail == "drop":
            return size // self.world_size
        if self.tail == "pad":
            return -(-size // self.world_size)
        if self.kind == "block":
            return (self.rank + 1) * size // self.world_size - self.first(size)
        return (size - self.rank + self.world_size - 1) // self.world_size

    def first(self, size: int) -> int:
        """Return this rank's first position of `size`."""
        if self.kind == "stride":
            return self.rank
        return self.rank * size // self.world_size if self.tail == KEEP else self.rank * self.count(size)

    def positions(self, own: NDArray[np.int64], size: int) -> NDArray[np.int64]:
        """Return the positions among all `size` of this rank's own positions, an array of the same shape `(n,)`."""
        positions = self.first(size) + own * (self.world_size if self.kind == "stride" else 1)
        return positions % size if self.tail == "pad" else positions

    def own(self, position: int, size: int) -> int | None:
        """Return the own position of a position of `size`: the inverse of `positions`. None if it is another rank's."""
        own, beside = divmod(position - self.first(size), self.world_size if self.kind == "stride" else 1)
        return own if not beside and 0 <= own < self.count(size) else None

    def as_json(self) -> dict[str, Any]:
        """Return the fields as a state holds them."""
        return {"rank": self.rank, "world_size": self.world_size, "kind": self.kind, "tail": self.tail}
