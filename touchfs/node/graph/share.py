"""Splitting a graph among workers.

The shares of a graph are disjoint and together complete. A node that has data, or an order of its children's items,
returns its part of it (`IteratorNode.for_worker`); any other node is copied, with the shares of its children. The
original graph does not change. Data that a node only draws from, such as a mixer's noise, is not split.

A source that is not a node, such as a list, may have a method `for_worker` too.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from touchfs.node.core.iterator_node import IteratorNode, children_of, with_children


def share_of(node: Any, worker: int, workers: int) -> Any:
    """Return the part of the graph below `node` of worker number `worker` (from 0) of `workers`.

    Raises UsageError for a leaf that cannot be split.
    """
    return node if workers == 1 and worker == 0 else _share(node, worker, workers, {})


def is_partitioned(node: Any) -> bool:
    """Return True if the graph is the part of one of several ranks."""
    return bool(getattr(node, "is_part", False)) or any(map(is_partitioned, children_of(node)))


def _share(node: Any, worker: int, workers: int, shared: dict[int, Any]) -> Any:
    # A node that occurs twice in the graph is also a single node in the share.
    if id(node) not in shared:
        part = getattr(node, "for_worker", partial(IteratorNode.for_worker, node))(worker, workers)
        if part is None:
            part = with_children(node, [_share(child, worker, workers, shared) for child in children_of(node)])
        shared[id(node)] = part
    return shared[id(node)]
