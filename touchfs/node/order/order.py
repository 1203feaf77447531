"""The order in which one rank visits the ordinals of a dataset: shuffle, partition, and remainders of earlier ranks.

    own position  --partition-->  position in the remainder  --stages-->  position in the epoch  --shuffle-->  ordinal

Every arrow is arithmetic, so any position is reached at once, and the state is the own position. The permutation of an
epoch has the seed `seed + epoch`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np

from touchfs.core.errors import UsageError
from touchfs.core.token import State
from touchfs.node.core.seed import Seed, check_seed, plain_seed, resolve_seed
from touchfs.node.order.batches import Part
from touchfs.node.order.epoch import Epoch, Permutation, WholeEpoch, ordinals_of
from touchfs.node.order.feistel import Feistel, round_keys
from touchfs.node.order.partition import Partition
from touchfs.node.order.windowed import Window, Windowed


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

    def whole(self, epoch: int) -> WholeEpoch:
        """Return all positions of an epoch."""
        return WholeEpoch(self.size, self.permutation(epoch))

    def seen(self, epoch: int, left: Epoch, part: Part, own: int) -> Iterator[int]:
        """Yield the ordinals that come before a part's own position: of earlier ranks, or a shared state, those of all.

        If only a part of the epoch is `left`, they come in the order of the whole one, and take some bytes of memory
        for each ordinal.
        """
        whole = self.whole(epoch)
        if isinstance(left, WholeEpoch):
            yield from islice(ordinals_of(whole, Partition(), 0), part.since)
            yield from islice(ordinals_of(whole, part, 0), own)
            return
        numbers = part.positions(np.arange(own), left.size)
        is_left = np.ones(left.size, np.bool_)
        is_left[: part.since] = is_left[numbers] = False
        is_seen = np.ones(self.size, np.bool_)
        is_seen[left.ordinals(np.flatnonzero(is_left))] = False
        seen = np.flatnonzero(is_seen)
        yield from seen[np.argsort(whole.positions_of(seen))].tolist()

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
