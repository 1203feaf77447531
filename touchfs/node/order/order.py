"""The order in which one rank visits the ordinals of a dataset: shuffle, partition, and remainders of earlier ranks.

    own position  --partition-->  position in the remainder  --stages-->  position in the epoch  --shuffle-->  ordinal

Every arrow is arithmetic, so any position is reached at once, and the state is the own position. The permutation of an
epoch has the seed `seed + epoch`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from touchfs.core.errors import UsageError
from touchfs.core.token import State
from touchfs.node.core.seed import Seed, check_seed, plain_seed, resolve_seed
from touchfs.node.order.feistel import Feistel
from touchfs.node.order.partition import Partition
from touchfs.node.order.remainder import Stage, remainders

# Ordinals computed at a time: few at first for a quick resume, then enough to amortize the cost of NumPy's calls.
FIRST_BLOCK = 16
BLOCK = 1 << 13


def order_seed(shuffle: bool, seed: Seed, has_ranks: bool) -> int | None:
    """Return the seed of an order; None without shuffle, and then no seed is drawn."""
    check_seed(seed)
    return resolve_seed(seed, has_ranks) if shuffle else None


@dataclass(frozen=True, slots=True)
class Order:
    """The order of `size` ordinals. With a seed it is shuffled, again in each epoch unless `stateful` is False."""

    size: int
    seed: int | None
    partition: Partition
    stateful: bool = True

    def config(self) -> State:
        """Return what a state must agree with."""
        return {"length": self.size, "seed": plain_seed(self.seed), "order": "lhotse", **self.shuffle_config()}

    def shuffle_config(self) -> State:
        """Return the fields of `config` that exist only for an order that is the same in each epoch."""
        return {"stateful_shuffle": False} if self.seed is not None and not self.stateful else {}

    def permutation(self, epoch: int) -> Feistel | None:
        """Return the permutation of an epoch, or None without shuffle."""
        return None if self.seed is None else Feistel(self.size, self.seed + epoch * self.stateful)

    def count(self, stages: Sequence[Stage] = ()) -> int:
        """Return how many ordinals this rank visits in an epoch, or in its remainder after `stages`."""
        return self.partition.count(([self.size] + [left.size for left in remainders(self.size, stages)])[-1])

    def ordinals(self, epoch: int, stages: Sequence[Stage], start: int) -> Iterator[int]:
        """Yield the ordinals of this rank from its own position `start` on."""
        left = remainders(self.size, stages)
        size = left[-1].size if left else self.size
        count, permutation, block = self.partition.count(size), self.permutation(epoch), FIRST_BLOCK
        while start < count:
            stop = min(start + block, count)
            where = self.partition.positions(np.arange(start, stop), size)
            for remainder in reversed(left):
                where = remainder.positions(where)
            yield from (where if permutation is None else permutation(where)).tolist()
            start, block = stop, min(block * 4, BLOCK)

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
