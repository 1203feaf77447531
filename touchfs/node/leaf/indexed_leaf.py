"""The base class of leaves over data with random access. A token is or contains an ordinal; the state is a position."""

from __future__ import annotations

import copy
from typing import Self

from touchfs.node.core.iteration import Iteration
from touchfs.node.core.saved import FRESH, Saved
from touchfs.node.core.scope import Track
from touchfs.node.graph.version_0_1 import unchained_state, unchained_token
from touchfs.node.order.order import Order
from touchfs.node.order.ordered_node import OrderedNode, OrderIteration
from touchfs.node.order.partition import Partition
from touchfs.token import Token


class IndexedLeaf(OrderedNode):
    """A leaf over data with random access, in an order."""

    is_indexed = True
    has_constant_time_access = True
    # How deep the integers in tokens are nested. Only a globally shuffled leaf had a chain above it in version 0.1.
    depth = 0
    _was_chained = False

    def iteration(self, epoch: int, saved: Saved) -> OrderIteration:
        return OrderIteration(self, epoch, saved)

    def begin(self, epoch: int = 0, saved: Saved = FRESH) -> Iteration:
        return super().begin(epoch, unchained_state(saved))

    def in_order(self, seed: int, partition: Partition) -> Self:
        self.refuse_ranks()
        leaf = copy.copy(self)
        leaf.order = Order(self.order.size, seed, partition)
        leaf._track = Track()
        leaf._was_chained = True
        return leaf

    def own_token(self, token: Token) -> Token:
        """Return this leaf's token, also for a token of the chain that version 0.1 put above it."""
        return unchained_token(token, self.depth) if self._was_chained else token
