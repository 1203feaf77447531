"""A graph as a whole: its description, and the seeds that were drawn in it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from touchfs.node.core.base import PairNode, children_of, kind_of
from touchfs.node.core.saved import Saved
from touchfs.node.core.seed import DrawnSeed, refuse_drawn
from touchfs.token import State


def describe(node: object) -> State:
    """The graph from a node down, with all that its states must agree with."""
    config = node.config() if isinstance(node, PairNode) else {}
    return {"node": kind_of(node), "config": config, "sources": list(map(describe, children_of(node)))}


def take_described_seeds(node: object, description: Saved) -> None:
    """Where seeds of a graph were drawn, take those of a description of it."""
    if isinstance(node, PairNode):
        node.take_seeds(description.child("config"))
    for child, described in zip(children_of(node), description.children("sources"), strict=False):
        take_described_seeds(child, described)


def drawing_nodes(node: Any) -> list[PairNode]:
    """The nodes of a graph whose seeds were drawn, in an order that is the same in every copy of the graph."""
    found: dict[int, PairNode] = {}
    seen: set[int] = set()
    left = [node]
    while left:
        node = left.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        left += children_of(node)
        if isinstance(node, PairNode):
            left += node.described()
            if isinstance(node.seed, DrawnSeed):
                found[id(node)] = node
    return list(found.values())


def drawn_seeds_of(nodes: Iterable[Any]) -> list[DrawnSeed]:
    """The seeds that were drawn in these and below."""
    return [drawing.seed for node in nodes for drawing in drawing_nodes(node) if isinstance(drawing.seed, DrawnSeed)]


def refuse_drawn_seeds(node: Any) -> None:
    """Raises UsageError if ranks would have other seeds each."""
    for seed in drawn_seeds_of([node]):
        if seed.differs_by_rank:
            refuse_drawn(seed.given)
