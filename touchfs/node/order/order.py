"""The order in which one rank visits the ordinals of a dataset: shuffle, partition, and remainders of earlier ranks.

    own position  --partition-->  position in the remainder  --stages-->  position in the epoch  --shuffle-->  ordinal

Every arrow is arithmetic, so any position is reached at once, and the state is the own position. The permutation of an
epoch has the seed `seed + epoch`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from touchfs.core.errors import UsageError
from touchfs.core.token import State
from touchfs.node.core.seed import Seed, check_seed, plain_seed, resolve_seed
from touchfs.node.order.batches import Part
from touchfs.node.order.feistel import Feistel, round_keys
from touchfs.node.order.partition import Partition
from touchfs.node.order.remainder import Stage, remainders
from touchfs.node.order.windowed import Window, Windowed

# Ordinals computed at a time: few at first for a quick resume, then enough to amortize the cost of NumPy's calls.
FIRST_BLOCK = 16
BLOCK = 1 << 13


def order_seed(shuffle: bool, seed: Seed, has_ranks: bool) -> int | None:
    """Return the seed of an order; None without shuffle, and then no seed is drawn."""
    check_seed(seed)
    return resolve_seed(seed, has_ranks) if shuffle else None


def window_of(seed: int | None, window: int | None, lanes: int) -> Window | None:
    """Return the window of a shuffle. Raises UsageError without a shuffle, and for lanes without a window."""
    if window is None:
        if lanes != 1:
            raise UsageError("lanes are of a windowed shuffle: give a window, too")
        return None
    if seed is None:
        raise UsageError("a window is of a shuffle: shuffle, too")
    return Window(window, lanes)


class Permutation(Protocol):
    """The permutation of an epoch, of arrays of shape `(n,)`."""

    def __call__(self, positions: NDArray[np.int64], /) -> NDArray[np.int64]: ...

    def inverse(self, ordinals: NDArray[np.int64], /) -> NDArray[np.int64]: ...


@dataclass(frozen=True, slots=True)
class Order:
    """The order of `size` ordinals. With a seed it is shuffled, again in each epoch unless `stateful` is False.

    With a `window`, the shuffle stays near the order of the data (`touchfs.node.order.windowed`).
    """

    size: int
    seed: int | None
    partition: Part
    stateful: bool = True
    window: Window | None = None

    def config(self) -> State:
        """Return what a state must agree with."""
        order = {"order": "lhotse"} if self.window is None else self.window.config()
        return {"length": self.size, "seed": plain_seed(self.seed), **order, **self.shuffle_config()}

    def shuffle_config(self) -> State:
        """Return the fields of `config` that exist only for an order that is the same in each epoch."""
        return {"stateful_shuffle": False} if self.seed is not None and not self.stateful else {}

    def permutation(self, epoch: int) -> Permutation | None:
        """Return the permutation of an epoch, or None without shuffle."""
        if self.seed is None:
            return None
        seed = self.seed + epoch * self.stateful
        if self.window is None:
            return Feistel(self.size, round_keys(seed))
        return Windowed(self.size, self.window, seed)

    def count(self) -> int:
        """Return how many ordinals this rank visits in an epoch."""
        return self.partition.count(self.size)

    def left(self, stages: Sequence[Stage] = ()) -> int:
        """Return how many positions an epoch has, or its remainder after `stages`."""
        return ([self.size] + [left.size for left in remainders(self.size, stages)])[-1]

    def ordinals(self, epoch: int, stages: Sequence[Stage], part: Part, start: int) -> Iterator[int]:
        """Yield the ordinals of a part from its own position `start` on."""
        left = remainders(self.size, stages)
        size = left[-1].size if left else self.size
        count, permutation, block = part.count(size), self.permutation(epoch), FIRST_BLOCK
        while start < count:
            stop = min(start + block, count)
            where = part.positions(np.arange(start, stop), size)
            for remainder in reversed(left):
                where = remainder.positions(where)
            yield from (where if permutation is None else permutation(where)).tolist()
            start, block = stop, min(block * 4, BLOCK)

    def seen(self, epoch: int, stages: Sequence[Stage], part: Part, own: int) -> Iterator[int]:
        """Yield the ordinals that come before a part's own position: of earlier ranks, or a shared state, those of all.

        With `stages` they come in the order of the epoch, and take a byte of memory for each ordinal.
        """
        if not stages:
            yield from islice(self.ordinals(epoch, (), Partition(), 0), part.since)
            yield from islice(self.ordinals(epoch, (), part, 0), own)
            return
        left, permutation = remainders(self.size, stages), self.permutation(epoch)
        numbers = part.positions(np.arange(own), left[-1].size)
        is_left = np.ones(left[-1].size, np.bool_)
        is_left[: part.since] = is_left[numbers] = False
        where = np.flatnonzero(is_left)
        for remainder in reversed(left):
            where = remainder.positions(where)
        is_seen = np.ones(self.size, np.bool_)
        is_seen[where] = False
        where = np.flatnonzero(is_seen)
        yield from (where if permutation is None else permutation(where)).tolist()

    def own(self, ordinal: int, epoch: int) -> int:
        """Return this rank's own position of an ordinal, in an epoch without stages.

        Raises UsageError if the ordinal belongs to another rank.
        """
        permutation = self.permutation(epoch)
        position = ordinal if permutation is None else int(permutation.inverse(np.array([ordinal]))[0])
        own = self.partition.own(position, self.size)
        if own is None:
            rank, ranks = self.partition.rank, self.partition.world_size
            raise UsageError(f"sample {ordinal} is not one of rank {rank} of {ranks} in epoch {epoch}")
        return own
