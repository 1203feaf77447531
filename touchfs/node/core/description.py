"""Functions over a whole graph: its description, and its drawn seeds."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from touchfs.core.token import State
from touchfs.node.core.iterator_node import children_of, kind_of
from touchfs.node.core.pair_node import PairNode
from touchfs.node.core.saved import Saved
from touchfs.node.core.seed import DrawnSeed, refuse_drawn


def recorded(node: Any) -> Any:
    """Return the node whose class and parameters states hold, for a node of any kind (`PairNode.recorded`)."""
    return node.recorded if isinstance(node, PairNode) else node


def describe(node: object) -> State:
    """Return the graph from a node down as JSON, with every parameter that its states must agree with."""
    node = recorded(node)
    config = node.config() if isinstance(node, PairNode) else {}
    return {"node": kind_of(node), "config": config, "sources": list(map(describe, children_of(node)))}


# What differs in the `config` of an order if its data have other shards. A window that was given as a size depends on
# theirs.
OF_DATA = ("length", "fingerprint", "window", "chunk")


def without_data(description: Any) -> Any:
    """Return what of a description, or of a list of them, is the same if the data have other shards."""
    if isinstance(description, list):
        return list(map(without_data, description))
    if not isinstance(description, dict) or not isinstance(config := description.get("config"), dict):
        return description
    if "fingerprint" in config or "data" in config:
        config = {name: without_data(value) for name, value in config.items() if name not in OF_DATA}
    return {**description, "config": config, "sources": without_data(description.get("sources"))}


def fingerprints_of(config: State, sources: Iterable[Any] = ()) -> list[Any]:
    """Return the fingerprints of the data in the `config` of an order, of a chain over described `sources`, too."""
    if "fingerprint" in config:
        return [config["fingerprint"]]
    below = config.get("data", sources)
    return [found for each in below for found in fingerprints_of(each["config"], each["sources"])]


def take_described_seeds(node: object, description: Saved) -> None:
    """Replace the drawn seeds of a graph by those in a description of it."""
    node = recorded(node)
    if isinstance(node, PairNode):
        node.take_seeds(description.child("config"))
    for child, described in zip(children_of(node), description.children("sources"), strict=False):
        take_described_seeds(child, described)


def drawing_nodes(node: Any) -> list[PairNode]:
    """Return the nodes of a graph that have drawn seeds, in the same order in every copy of the graph."""
    return [each for each in nodes_of(node) if isinstance(each.seed, DrawnSeed)]


def nodes_of(node: Any) -> list[PairNode]:
    """Return the nodes of this package in a graph, each once, in the same order in every copy of the graph."""
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
            found[id(node)] = node
    return list(found.values())


def drawn_seeds_of(nodes: Iterable[Any]) -> list[DrawnSeed]:
    """Return the drawn seeds of these nodes and of all nodes below them."""
    return [drawing.seed for node in nodes for drawing in drawing_nodes(node) if isinstance(drawing.seed, DrawnSeed)]


def refuse_drawn_seeds(node: Any) -> None:
    """Raise UsageError if each rank would draw a different seed."""
    for seed in drawn_seeds_of([node]):
        if seed.differs_by_rank:
            refuse_drawn(seed.given)
