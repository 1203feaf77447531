"""The base class of leaves over data with random access. A token is or contains an ordinal; the state is a position."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cached_property
from typing import Any, Self

from touchfs.indexing.serving import warn_of_global_shuffle
from touchfs.node.core.saved import Saved
from touchfs.node.core.scope import Track
from touchfs.node.order.batches import Part
from touchfs.node.order.order import Order
from touchfs.node.order.ordered_node import OrderedNode, OrderIteration
from touchfs.node.order.windowed import Window
from touchfs.store.shard_lists import ShardList, remember


class IndexedLeaf(OrderedNode):
    """A leaf over data with random access, in an order."""

    is_indexed = True
    has_constant_time_access = True

    samples: Any

    def iteration(self, epoch: int, saved: Saved) -> OrderIteration:
        return OrderIteration(self, epoch, saved)

    @cached_property
    def fingerprint(self) -> str | None:
        """The fingerprint of the samples, if they have one. From now on, their shards are known by it."""
        fingerprint: str | None = getattr(self.samples, "fingerprint", None)
        if fingerprint is not None:
            remember(fingerprint, self.shard_list)
        return fingerprint

    def shard_list(self) -> ShardList | None:
        make: Callable[[], ShardList | None] = getattr(self.samples, "shard_list", super().shard_list)
        return make()

    def in_order(self, seed: int, part: Part, window: Window | None) -> Self:
        """Return a copy that visits `part` of its samples shuffled with `seed`, within a `window` if given.

        Raises UsageError if this is one rank's part.
        """
        self.refuse_ranks()
        leaf = copy.copy(self)
        leaf.order = Order(self.order.size, seed, part, window=window)
        leaf._track = Track()
        if window is None:
            warn_of_global_shuffle(self.samples)
        return leaf
