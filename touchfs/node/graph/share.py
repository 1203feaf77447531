"""Splitting a graph among workers.

The shares of a graph are disjoint and together complete, whatever nodes are above: nodes with an `order`, of samples
or of shards, take their part of it (`Partition.for_worker`); all other nodes are copied unchanged. The original graph
does not change. Data that a node only draws from, such as a mixer's noise, is not split.

A leaf without an order needs a method `for_worker(worker, workers)` that returns the leaf of one worker. Without it
every worker would yield all its items, so such a leaf is refused.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

from touchfs.errors import UsageError
from touchfs.node.core.iterator_node import children_of, kind_of
from touchfs.node.leaf.dataloading import is_split
from touchfs.node.order.order import Order


def share_of(node: Any, worker: int, workers: int) -> Any:
    """Return the part of the graph below `node` of worker number `worker` (from 0) of `workers`.

    Raises UsageError for a leaf that cannot be split.
    """
    return node if workers == 1 and worker == 0 else _share(node, worker, workers, {})


def is_partitioned(node: Any) -> bool:
    """Return True if the graph is the part of one of several ranks."""
    if _goes_through_an_order(node):
        return bool(node.order.partition.world_size > 1)
    return any(map(is_partitioned, children_of(node)))


def _share(node: Any, worker: int, workers: int, shared: dict[int, Any]) -> Any:
    # A node that occurs twice in the graph is also a single node in the share.
    if id(node) not in shared:
        shared[id(node)] = _copy(node, worker, workers, shared)
    return shared[id(node)]


def _copy(node: Any, worker: int, workers: int, shared: dict[int, Any]) -> Any:
    if _goes_through_an_order(node):
        order = node.order
        mine = copy.copy(node)
        if is_split(mine):
            mine.split_for_dataloading = False
        mine.order = replace(order, partition=order.partition.for_worker(worker, workers))
        return mine
    children = [_share(child, worker, workers, shared) for child in children_of(node)]
    if not children:
        if not hasattr(node, "for_worker"):
            raise UsageError(
                f"a {kind_of(node)} cannot be shared among {workers} workers, each would iterate all of it: "
                "use one worker, or indexed data"
            )
        return node.for_worker(worker, workers)
    mine = copy.copy(node)
    if hasattr(node, "sources"):
        mine.sources = children
    else:
        (mine.source,) = children
    return mine


def _goes_through_an_order(node: Any) -> bool:
    """Return True if the node itself has the order; a chain that does not shuffle leaves it to its sources."""
    return isinstance(getattr(node, "order", None), Order) and bool(getattr(node, "shuffle_iters", True))
