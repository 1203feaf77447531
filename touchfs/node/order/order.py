"""The order in which one rank visits the ordinals of a dataset: shuffle, partition, and remainders of earlier ranks.

    own position  --partition-->  position in the remainder  --stages-->  position in the epoch  --shuffle-->  ordinal

Every arrow is arithmetic, so any position is reached at once, and the state is the own position. The permutation of an
epoch has the seed `seed + epoch`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np

from touchfs.errors import FormatError, UsageError
from touchfs.node.core.iteration import Iteration, Pair
from touchfs.node.core.pair_node import PairNode
from touchfs.node.core.saved import FRESH, Saved
from touchfs.node.core.seed import Seed, check_seed, plain_seed, resolve_seed
from touchfs.node.order.feistel import Feistel
from touchfs.node.order.partition import Partition
from touchfs.node.order.remainder import Stage, read_stage, remainders
from touchfs.token import State, Token

# Ordinals computed at a time: few at first for a quick resume, then enough to amortize the cost of NumPy's calls.
FIRST_BLOCK = 16
BLOCK = 1 << 13


def order_seed(shuffle: bool, seed: Seed, has_ranks: bool) -> int | None:
    """Return the seed of an order; None without shuffle, and then no seed is drawn."""
    check_seed(seed)
    return resolve_seed(seed, has_ranks) if shuffle else None


@dataclass(frozen=True, slots=True)
class Order:
    """The order of `size` ordinals. With a seed it is shuffled, anew in each epoch unless `stateful` is False."""

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


class OrderedNode(PairNode):
    """A node that visits ordinals in an `order`."""

    order: Order

    @property
    def seed(self) -> Any:
        """The seed of the order, or None without shuffle."""
        return self.order.seed

    @seed.setter
    def seed(self, seed: Any) -> None:
        self.order = replace(self.order, seed=seed)

    @abstractmethod
    def pair_at(self, ordinal: int, epoch: int) -> Pair:
        """Return the token of an ordinal in an epoch, and the function that makes its item."""

    @abstractmethod
    def token_of(self, ordinal: int, epoch: int) -> Token:
        """Return the token of an ordinal in an epoch."""

    def tokens_of(self, ordinals: list[int], epoch: int) -> list[Token | None]:
        """Return the tokens of several ordinals in an epoch."""
        return [self.token_of(ordinal, epoch) for ordinal in ordinals]

    @abstractmethod
    def ordinal_of(self, token: Token) -> int:
        """Return the ordinal of a token."""

    def token_at(self, ordinal: int, epoch: int) -> Token:
        """Return the token of an ordinal in an epoch, for a global shuffle above.

        Raises UsageError if this is partitioned.
        """
        self.refuse_ranks()
        return self.token_of(ordinal, epoch)

    def refuse_ranks(self) -> None:
        """Raise UsageError if this is one rank's part, which cannot be a source of a global shuffle."""
        if self.order.partition.world_size > 1:
            raise UsageError("a source of a global shuffle is not partitioned: give rank and world_size to the shuffle")

    def locate(self, token: Token, epoch: int) -> State:
        self.make(token)
        return OrderIteration(self, epoch, own=self.order.own(self.ordinal_of(token), epoch)).state()


class OrderIteration(Iteration):
    """An iteration whose position is one integer: `own`, this rank's next position."""

    node: OrderedNode

    def __init__(self, node: OrderedNode, epoch: int, saved: Saved = FRESH, own: int = 0) -> None:
        super().__init__(node, epoch)
        self.stages = [read_stage(stage) for stage in saved.children("stages")]
        _check_partition(saved, node.order.partition)
        self.own = own if saved.fresh else saved.integer("position", node.order.count(self.stages))
        self._ordinals = node.order.ordinals(epoch, self.stages, self.own)

    def walk(self) -> Iterator[Pair]:
        pair_at, epoch = self.node.pair_at, self.epoch
        for ordinal in self._ordinals:
            self.own += 1
            yield pair_at(ordinal, epoch)

    def take(self, count: int) -> list[Token | None]:
        taken = self.node.tokens_of(list(islice(self._ordinals, count)), self.epoch)
        self.own += len(taken)
        self.ended = self.ended or len(taken) < count
        return taken

    def position(self) -> State:
        return {
            "position": self.own,
            "partition": self.node.order.partition.as_json(),
            "stages": [stage.as_json() for stage in self.stages],
        }


def _check_partition(saved: Saved, partition: Partition) -> None:
    """Raise if a state is of another partition. A merged state has none, and fits any partition."""
    theirs: Any = saved.get("partition")
    if theirs is None or theirs == partition.as_json():
        return
    if not isinstance(theirs, dict):
        raise FormatError(f"{saved.where}.partition is not one: the state is damaged")
    mine = partition.as_json()
    raise UsageError(
        f"{saved.where} is one rank's own, of {theirs!r:.200}, and this is {mine}: "
        "to resume with other ranks, merge the states of all old ones with merge_states"
    )
