"""Splitting a graph among workers.

The shares of a graph are disjoint and together complete. A node that has data, or an order of its children's items,
returns its part of it (`IteratorNode.for_worker`); any other node is copied, with the shares of its children. The
original graph does not change. Data that a node only draws from, such as a mixer's noise, is not split.

A source that is not a node, such as a list, may have a method `for_worker` too.

The shares of a restored graph are those of what is left: its state is merged, as for other ranks.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from touchfs.node.core.iterator_node import IteratorNode, children_of, with_children
from touchfs.node.core.pair_node import PairNode
from touchfs.node.graph.merge import merge_states
from touchfs.node.graph.state import collect_state_dict, restore_state_dict


def share_of(node: Any, worker: int, workers: int) -> Any:
    """Return the part of the graph below `node` of worker number `worker` (from 0) of `workers`.

    Raises UsageError for a leaf that cannot be split, and for a restored graph whose state cannot be merged.
    """
    if workers == 1 and worker == 0:
        return node
    share = _share(node, worker, workers, {})
    if is_restored(node):
        restore_state_dict(share, merge_states([collect_state_dict(node)]))
    return share


def is_restored(node: Any) -> bool:
    """Return True if a state was loaded at or below this node, and no iteration has begun since."""
    if isinstance(node, PairNode):
        return node.next_start()[1] is not None
    return any(map(is_restored, children_of(node)))


def _share(node: Any, worker: int, workers: int, shared: dict[int, Any]) -> Any:
    # A node that occurs twice in the graph is also a single node in the share.
    if id(node) not in shared:
        part = getattr(node, "for_worker", partial(IteratorNode.for_worker, node))(worker, workers)
        if part is None:
            part = with_children(node, [_share(child, worker, workers, shared) for child in children_of(node)])
        shared[id(node)] = part
    return shared[id(node)]
