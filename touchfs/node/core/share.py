"""The part of a graph that one of several workers goes through.

Shares of a graph are disjoint and together the whole, whatever nodes are above: the nodes that have an `order`, of
samples or of shards, take their part of it (`Partition.for_worker`), and all others keep what they are. The graph given
is not changed. What a graph draws from besides, as a mixer does from its noise, is everyone's.

A leaf without an order takes part with a method of its own, `for_worker(worker, workers)`, which returns the leaf of
that worker. Without one it would come from every worker, so it is refused.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

from touchfs.errors import UsageError
from touchfs.node.core.base import children_of, kind_of
from touchfs.node.leaf.dataloading import is_split
from touchfs.node.order.order import Order


def share_of(node: Any, worker: int, workers: int) -> Any:
    """The graph of one of `workers`."""
    return node if workers == 1 and worker == 0 else _share(node, worker, workers, {})


def is_partitioned(node: Any) -> bool:
    """Whether the graph is one rank's of several."""
    if _goes_through_an_order(node):
        return bool(node.order.partition.world_size > 1)
    return any(map(is_partitioned, children_of(node)))


def _share(node: Any, worker: int, workers: int, shared: dict[int, Any]) -> Any:
    # A node in two places is one node in the share too.
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
                f"a {kind_of(node)} cannot be shared among {workers} workers, each would go through all of it: "
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
    """A chain does when it shuffles; otherwise its sources do."""
    return isinstance(getattr(node, "order", None), Order) and bool(getattr(node, "shuffle_iters", True))
