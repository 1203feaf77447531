"""The partition of an epoch's positions among ranks.

`stride`    rank r takes positions r, r + world size, …: ranks in lock step move through the epoch together
`block`     rank r takes the r-th contiguous run: neighbours in a file stay on one rank

If the positions do not divide evenly, the `tail` decides: `keep` gives some ranks one sample more than others, `drop`
leaves out the last positions, `pad` repeats the first positions until all ranks have equally many.
Workers of a rank are ranks of their own (`for_worker`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from touchfs.core.errors import UsageError
from touchfs.core.token import State
from touchfs.node.core.saved import Saved

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
    since: ClassVar[int] = 0

    def __post_init__(self) -> None:
        check_ranks(self.rank, self.world_size)
        if self.kind not in KINDS:
            raise UsageError(f"no partition {self.kind!r}: it is one of {', '.join(KINDS)}")
        check_tail(self.tail)

    @property
    def is_part(self) -> bool:
        """True if there are other ranks."""
        return self.world_size > 1

    @property
    def before(self) -> int:
        """How many samples were this rank's before its own position 0."""
        return 0

    def for_worker(self, worker: int, workers: int) -> Partition:
        """Return the part of one of this rank's workers. Raises UsageError if there is no such worker."""
        check_worker(worker, workers)
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

    def state(self, own: int, size: int) -> State:
        """Return the fields of a state at an own position of `size`."""
        return {"position": own, "partition": self.as_json()}

    def resumed(self, saved: Saved, size: int) -> tuple[Partition, int]:
        """Return the part that goes on at a `saved` state, and its own position of `size` there.

        A merged state has no partition, and fits any. Raises UsageError for a state of another one.
        """
        theirs, mine = saved.get("partition"), self.as_json()
        if theirs is None or theirs == mine:
            return self, saved.integer("position", self.count(size))
        raise UsageError(
            f"{saved.where} is one rank's own, of {saved.child('partition').fields()!r:.200}, and this is {mine}: "
            "to resume with other ranks or workers, merge the states of all old ones with merge_states"
        )


def check_ranks(rank: int, world_size: int) -> None:
    """Raise UsageError if there is no such rank."""
    if not 0 < world_size <= MOST_RANKS or not 0 <= rank < world_size:
        raise UsageError(f"there is no rank {rank} of {world_size}: ranks are 0 to world_size - 1")


def check_count(value: object, name: str) -> None:
    """Raise UsageError for what is no number of samples."""
    if type(value) is not int or value < 1:
        raise UsageError(f"{name} is an integer from 1 on, not {value!r:.80}")


def check_worker(worker: int, workers: int) -> None:
    """Raise UsageError if there is no such worker."""
    if not 0 <= worker < workers:
        raise UsageError(f"there is no worker {worker} of {workers}: workers are 0 to workers - 1")


def check_tail(tail: str) -> None:
    """Raise UsageError if there is no such tail."""
    if tail not in TAILS:
        raise UsageError(f"no tail {tail!r}: it is one of {', '.join(TAILS)}")
