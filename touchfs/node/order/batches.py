"""Global batches: an epoch is cut into them first, and ranks and their workers share each.

Global batch j has positions jB to jB + B - 1. Rank r of R takes the r-th contiguous part of each, and worker w of W the
batches w, w + W, … counted from where the pass began or was resumed. So what is in a batch depends neither on ranks nor
on workers, and a state between two batches is the same on all ranks and fits any.

The last batch may be short. With the tail `keep` some ranks take one sample of it more than others, with `drop` nobody
takes any, and with `pad` the first positions of the epoch fill it.

In an order with lanes, position p is in lane p modulo lanes. A batch is sorted by lane before ranks take their parts,
so it has equally many samples of each, and ranks that divide the lanes read their own lanes alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from touchfs.core.errors import FormatError, UsageError
from touchfs.core.token import State
from touchfs.node.core.saved import Saved
from touchfs.node.order.partition import KEEP, KINDS, Partition, check_count, check_ranks, check_tail, check_worker

BATCHES = "batches"
PARTITIONS = (*KINDS, BATCHES)
# The fields of a state's partition that all ranks share. Another, `own`, has the numbers `OWN`, or is null in a state
# that fits any ranks.
SHARED = ("kind", "global_batch", "tail")
OWN = ("rank", "world_size", "worker", "workers", "batches", "taken")


@dataclass(frozen=True, slots=True)
class GlobalBatches:
    """The part of worker `worker` of `workers` of rank `rank` of `world_size`, of global batches of `size` samples.

    They are counted from position `since` on, in an order of `lanes`. Raises UsageError for a size that ranks or lanes
    do not divide.
    """

    size: int
    rank: int = 0
    world_size: int = 1
    tail: str = KEEP
    lanes: int = 1
    worker: int = 0
    workers: int = 1
    since: int = 0

    def __post_init__(self) -> None:
        check_ranks(self.rank, self.world_size)
        check_tail(self.tail)
        check_count(self.size, "global_batch")
        for parts, what in ((self.world_size, "ranks"), (self.lanes, "lanes")):
            if self.size % parts:
                below = self.size // parts * parts
                nearest = " or ".join(str(size) for size in (below, below + parts) if size)
                raise UsageError(f"{parts} {what} cannot share global batches of {self.size} samples: take {nearest}")

    @property
    def is_part(self) -> bool:
        """True, also of a single rank: other ranks cannot share what its workers share."""
        return True

    def for_worker(self, worker: int, workers: int) -> GlobalBatches:
        """Return the part of one of this rank's workers. Raises UsageError if there is no such worker."""
        check_worker(worker, workers)
        return replace(self, worker=worker, workers=workers)

    def count(self, size: int) -> int:
        """Return how many of `size` positions this worker visits, from `since` on.

        Raises UsageError where some ranks would get no sample of the last batch.
        """
        whole, short = self._batches(size)
        if 0 < short < self.world_size:
            raise UsageError(
                f'the last batch has {short} samples for {self.world_size} ranks: the tail "drop" leaves it out, '
                '"pad" fills it'
            )
        count = len(range(self.worker, whole, self.workers)) * self._each
        return count + (self._has(whole) and self._cut(self.rank + 1, short) - self._cut(self.rank, short))

    def positions(self, own: NDArray[np.int64], size: int) -> NDArray[np.int64]:
        """Return the positions among all `size` of this worker's own positions, an array of the same shape `(n,)`."""
        whole, short = self._batches(size)
        number, inside = np.divmod(own, self._each)
        number = self.worker + number * self.workers
        lane, of_lane = np.divmod(self.rank * self._each + inside, self.size // self.lanes)
        inside = np.where(number < whole, of_lane * self.lanes + lane, self._cut(self.rank, short) + inside)
        positions = self.since + number * self.size + inside
        return positions % size if self.tail == "pad" else positions

    def own(self, position: int, size: int) -> int | None:
        """Return the own position of a position of `size`: the inverse of `positions`. None if it is another's."""
        whole, short = self._batches(size)
        number, inside = divmod(position - self.since, self.size)
        if number < 0 or number > whole or not self._has(number):
            return None
        first, end = self.rank * self._each, (self.rank + 1) * self._each
        if number < whole:
            inside = inside % self.lanes * (self.size // self.lanes) + inside // self.lanes
        else:
            first, end = self._cut(self.rank, short), self._cut(self.rank + 1, short)
        return number // self.workers * self._each + inside - first if first <= inside < end else None

    def state(self, own: int, size: int) -> State:
        """Return the fields of a state at an own position of `size`: one that all ranks share, if they can."""
        number, taken = divmod(own, self._each)
        if taken and own == self.count(size):  # of the short last batch
            number, taken = number + 1, 0
        position = self.since
        if self.workers == 1:  # batches of several workers are numbered from where all of them began
            position, number = min(position + number * self.size, size), 0
        numbers = None if self.workers == 1 and not taken else [*self._place, number, taken]
        return {"position": position, "partition": {**self.as_json(), "own": numbers}}

    def resumed(self, saved: Saved, size: int) -> tuple[GlobalBatches, int]:
        """Return the part that goes on at a `saved` state, and its own position of `size` there.

        A state that ranks share fits any of them, also with batches of another size. Raises UsageError for one that
        does not fit, FormatError for a damaged one.
        """
        position = saved.integer("position", size)
        if saved.get("partition") is None:  # of ranks that took no batches
            if position:
                raise FormatError(f"{saved.where} has a position and no partition: the state is damaged")
            return self, 0
        theirs = saved.child("partition")
        part, shared = replace(self, since=position), {name: theirs.fields().get(name) for name in SHARED}
        if shared["kind"] == BATCHES and theirs.get("own") is None:
            theirs.refuse_others((*SHARED, "own"))
            if shared["tail"] != self.tail:
                raise UsageError(f"{saved.where} has tail {shared['tail']!r:.20}, here it is {self.tail!r}")
            return part, 0
        if shared != self.as_json() or (own := own_of(theirs))[:4] != self._place:
            raise UsageError(
                f"{saved.where} is of {theirs.fields()!r:.200}, and this is {self.as_json()} of {self._place}: other "
                "ranks and workers go on at a state from between two batches, which merge_states makes of those of all "
                "old workers"
            )
        batches, taken = own[4:]
        own_position, count = batches * self._each + taken, part.count(size)
        if taken > self._each or own_position >= count + self._each:  # the last batch may be short
            raise FormatError(f"{saved.where} has taken more than there is: the state is damaged")
        return part, min(own_position, count)

    @property
    def before(self) -> int:
        """How many samples were this rank's before `since`."""
        return self.since // self.size * self._each

    def as_json(self) -> State:
        """Return what the states of all ranks have in common."""
        return {"kind": BATCHES, "global_batch": self.size, "tail": self.tail}

    @property
    def _place(self) -> tuple[int, ...]:
        return self.rank, self.world_size, self.worker, self.workers

    @property
    def _each(self) -> int:
        """How many samples of a whole batch are this rank's."""
        return self.size // self.world_size

    def _batches(self, size: int) -> tuple[int, int]:
        """Return how many whole batches there are, and how many samples of a short one."""
        whole, short = divmod(size - self.since, self.size)
        if self.tail == KEEP:
            return whole, short
        return whole + (short > 0 and self.tail == "pad"), 0

    def _has(self, number: int) -> bool:
        return number % self.workers == self.worker

    def _cut(self, rank: int, short: int) -> int:
        """Return where the part of a rank of the short batch begins."""
        return rank * short // self.world_size


def own_of(partition: Saved) -> tuple[int, ...]:
    """Return the numbers `OWN` in a partition of a state. Raises FormatError."""
    own = partition.integers("own")
    if len(own) != len(OWN):
        raise FormatError(f"{partition.where}.own has {len(own)} numbers, and not {len(OWN)}: the state is damaged")
    return tuple(own)


# What one rank or worker visits of an epoch.
Part: TypeAlias = Partition | GlobalBatches


def part_of(
    rank: int, world_size: int, partition: str, tail: str, global_batch: int | None = None, lanes: int = 1
) -> Part:
    """Return the part that these arguments of a node describe. Raises UsageError for those that do not fit together."""
    if partition == BATCHES:
        if global_batch is None:
            raise UsageError('the partition "batches" needs the size of a global batch: give global_batch')
        return GlobalBatches(global_batch, rank, world_size, tail, lanes)
    if global_batch is not None:
        raise UsageError(f'a global batch is of the partition "batches", not of {partition!r:.80}')
    return Partition(rank, world_size, partition, tail)


def global_batch_of(state: State) -> int | None:
    """Return the size of the global batches that the state of a graph is of, if it is of any."""
    while isinstance(inner := state.get("source"), dict):
        state = inner
    partition = state.get("partition")
    if not isinstance(partition, dict) or partition.get("kind") != BATCHES:
        return None
    return Saved(partition, "state.partition").integer("global_batch")
