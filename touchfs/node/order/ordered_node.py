"""Nodes that visit ordinals in an order. The state is one integer: the next position."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from touchfs.core.errors import UsageError
from touchfs.core.token import State, Token
from touchfs.node.core.iteration import Iteration, Pair
from touchfs.node.core.iterator_node import kind_of
from touchfs.node.core.ranks import Ranks
from touchfs.node.core.saved import FRESH, Saved
from touchfs.node.order.merge import merge_positions
from touchfs.node.order.order import Order
from touchfs.node.order.partitioned_node import PartitionedNode
from touchfs.node.order.remainder import Stage, read_stage


class OrderedNode(PartitionedNode):
    """A node that visits ordinals in an `order`."""

    @property
    def has_order(self) -> bool:
        """False if the order is that of the sources instead."""
        return True

    def order_of(self, epoch: int) -> Order:
        """Return the order of an epoch: some nodes have epochs of different lengths."""
        return self.order

    def lengths_at(self, ordinals: NDArray[np.int64], epoch: int, measure: str) -> NDArray[np.int64]:
        """Return the lengths of the samples at these ordinals in an epoch (`touchfs.core.measure`), shape `(n,)`.

        Raises UsageError if nothing tells them.
        """
        raise UsageError(f"no index tells the lengths of the items of a {kind_of(self)}: open a dataset of shards")

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
        if self.order.partition.is_part:
            raise UsageError("a source of a global shuffle is not partitioned: give rank and world_size to the shuffle")

    @classmethod
    def merge(cls, ranks: Ranks) -> State:
        return merge_positions(ranks)

    def total_progress(self, state: State) -> tuple[int, int | None]:
        saved = Saved(state)
        size = self.order_of(saved.integer("epoch")).left(_stages_of(saved))
        part, own = self.order.partition.resumed(saved, size)
        return part.before + own, part.before + part.count(size)

    def seen(self, state: State) -> Iterator[Pair]:
        """Yield the pairs that a pass had given when `state` was taken. Raises as `begin`.

        A state that ranks share, or that was merged of theirs, has those of all ranks.
        """
        iteration = self.begin(saved=Saved(state))
        if isinstance(iteration, OrderIteration):
            ordinals = iteration.seen()
        else:  # at the end of its epoch
            order = self.order_of(iteration.epoch)
            ordinals = order.ordinals(iteration.epoch, (), order.partition, 0)
        return (self.pair_at(ordinal, iteration.epoch) for ordinal in ordinals)

    def locate(self, token: Token, epoch: int) -> State:
        self.make(token)
        return OrderIteration(self, epoch, own=self.order_of(epoch).own(self.ordinal_of(token), epoch)).state()

    def __len__(self) -> int:
        """Return how many ordinals this rank visits in an epoch."""
        return self.order.count()


class OrderIteration(Iteration):
    """An iteration whose position is one integer: `own`, this rank's next position."""

    node: OrderedNode

    def __init__(self, node: OrderedNode, epoch: int, saved: Saved = FRESH, own: int = 0) -> None:
        super().__init__(node, epoch)
        self.stages = _stages_of(saved)
        self._order = node.order_of(epoch)
        self.size = self._order.left(self.stages)
        part = self._order.partition
        self._part, self.own = (part, own) if saved.fresh else part.resumed(saved, self.size)
        self._ordinals = self._order.ordinals(epoch, self.stages, self._part, self.own)

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

    def seen(self) -> Iterator[int]:
        """Yield the ordinals before the position."""
        return self._order.seen(self.epoch, self.stages, self._part, self.own)

    def position(self) -> State:
        return {**self._part.state(self.own, self.size), "stages": [stage.as_json() for stage in self.stages]}


def _stages_of(saved: Saved) -> list[Stage]:
    return [read_stage(stage) for stage in saved.children("stages")]
