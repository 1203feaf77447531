"""Graphs that make one item of each position of one order: an ordered node below maps and prefetchers.

Such a graph can be shared in global batches, and positioned, from above.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

from touchfs.core.errors import UsageError
from touchfs.core.token import State
from touchfs.node.core.description import recorded
from touchfs.node.core.iterator_node import children_of, kind_of, resolve_iterator_source, with_children
from touchfs.node.core.saved import Saved
from touchfs.node.core.scope import Track
from touchfs.node.graph.state import enclose
from touchfs.node.order.batches import GlobalBatches, Part
from touchfs.node.order.epoch import read_stages
from touchfs.node.order.ordered_node import OrderedNode
from touchfs.node.transform.mapper import LazyMapper
from touchfs.node.transform.prefetcher import LazyPrefetcher


def find_ordered_node(graph: Any) -> OrderedNode | None:
    """Return the node whose order a graph goes through, or None if it has none."""
    node = recorded(resolve_iterator_source(graph))
    while isinstance(node, LazyMapper | LazyPrefetcher):
        node = recorded(node.source)
    return node if isinstance(node, OrderedNode) and node.has_order else None


def ordered_node(graph: Any) -> OrderedNode:
    """Return the node whose order a graph goes through. Raises UsageError if it has none."""
    node = find_ordered_node(graph)
    if node is None:
        raise UsageError(
            f"global batches are of items whose number is known, and a {kind_of(resolve_iterator_source(graph))} does "
            "not know it: filter with where, and have the loader make the batches"
        )
    return node


def with_part(graph: Any, part: Part) -> Any:
    """Return a copy of a graph that visits another part of its order. Raises UsageError if it has none."""
    ordered_node(graph)
    node = recorded(resolve_iterator_source(graph))
    if isinstance(node, OrderedNode):
        node = copy.copy(node)
        node.order = replace(node.order, partition=part)
    else:
        node = with_children(node, [with_part(child, part) for child in children_of(node)])
    node._track = Track()
    return node


def next_position(graph: Any) -> tuple[int, int, list[State]]:
    """Return the epoch, and the position in what is left after stages of it, that the next iteration begins at."""
    epoch, state = recorded(resolve_iterator_source(graph)).next_start()
    if state is None:
        return epoch, 0, []
    ahead = 0
    while "source" in state:
        ahead += len(state.get("ahead", ()))
        state = state["source"]
    return state["epoch"], state["position"] - ahead, state["stages"]


def at_position(graph: Any, epoch: int, batches: GlobalBatches, stages: list[State]) -> tuple[Any, State]:
    """Return a copy of a graph that takes `batches` from their first position on, in what is left after stages of an
    epoch, and its state there.
    """
    graph = with_part(graph, batches)
    state = recorded(resolve_iterator_source(graph)).begin(epoch).state()
    inner = state
    while "source" in inner:
        inner = inner["source"]
    inner |= {
        "position": batches.since,
        "partition": {**batches.as_json(), "own": None},
        "stages": stages,
    }
    if "units" in inner:
        inner["units"] = ordered_node(graph).left_of(epoch, read_stages(Saved(inner))).size
    return graph, enclose(graph, state)
