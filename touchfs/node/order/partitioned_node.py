"""The base class of nodes with an order, of samples or of shards, which is split among ranks and their workers."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any, Self

from touchfs.node.core.pair_node import PairNode
from touchfs.node.order.order import Order


class PartitionedNode(PairNode):
    """A node that visits one rank's part of an `order`."""

    order: Order
    # True if each process of a training job takes its own part (`touchfs.node.leaf.dataloading`).
    split_for_dataloading = False

    @property
    def seed(self) -> Any:
        """The seed of the order, or None without shuffle."""
        return self.order.seed

    @seed.setter
    def seed(self, seed: Any) -> None:
        self.order = replace(self.order, seed=seed)

    @property
    def is_part(self) -> bool:
        return self.order.partition.is_part

    def for_worker(self, worker: int, workers: int) -> Self | None:
        return self.part(worker, workers)

    def part(self, worker: int, workers: int) -> Self:
        """Return the part of worker number `worker` (from 0) of this rank's `workers`."""
        part = copy.copy(self)
        part.order = replace(self.order, partition=self.order.partition.for_worker(worker, workers))
        part.split_for_dataloading = False
        return part
