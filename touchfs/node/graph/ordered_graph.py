"""Graphs that make one item of each position of one order: ordered nodes below maps and prefetchers.

Such a graph can be shared in global batches, and positioned, from above.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

from touchfs.core.errors import UsageError
from touchfs.node.core.description import recorded
from touchfs.node.core.iterator_node import children_of, kind_of, resolve_iterator_source, with_children
from touchfs.node.core.scope import Track
from touchfs.node.order.batches import Part
from touchfs.node.order.ordered_node import OrderedNode
from touchfs.node.transform.mapper import LazyMapper
from touchfs.node.transform.prefetcher import LazyPrefetcher


def ordered_node(graph: Any) -> OrderedNode:
    """Return the node whose order a graph goes through. Raises UsageError for a graph that has none."""
    node = recorded(resolve_iterator_source(graph))
    if isinstance(node, LazyMapper | LazyPrefetcher):
        return ordered_node(node.source)
    if not isinstance(node, OrderedNode) or not node.has_order:
        raise UsageError(
            f"global batches are of items whose number is known, and a {kind_of(node)} does not know it: "
            "filter with where, and batch with the loader"
        )
    return node


def with_part(graph: Any, part: Part) -> Any:
    """Return a copy of a graph that visits another part of its order."""
    node = recorded(resolve_iterator_source(graph))
    if isinstance(node, OrderedNode):
        node = copy.copy(node)
        node.order = replace(node.order, partition=part)
    else:
        node = with_children(node, [with_part(child, part) for child in children_of(node)])
    node._track = Track()
    return node
