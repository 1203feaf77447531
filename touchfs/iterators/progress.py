"""The progress of an iteration, computed from its state: epoch, position and length.

For a repeated source each repeat is an epoch, and position and length are those within it. For a mux they are the sums
over its sources, each with all its repeats.
"""

from __future__ import annotations

from typing import Any

from touchfs.node.core.pair_node import PairNode
from touchfs.node.core.saved import Saved
from touchfs.node.order.ordered_node import OrderedNode
from touchfs.node.order.remainder import read_stage
from touchfs.node.transform.multiplexer import LazyIteratorMultiplexer
from touchfs.node.transform.repeater import LazyRepeater
from touchfs.token import State


def epoch_of(state: State) -> int:
    """Return the epoch of the state of a root."""
    return int(state["source"]["epoch"] if state["node"] == LazyRepeater.__name__ else state["epoch"])


def progress_of(node: Any, state: State) -> tuple[int, int | None]:
    """Return (position, length), where the length of an endless iteration is None."""
    if isinstance(node, LazyRepeater):
        node, state = node.source, state["source"]
    return _total(node, state)


def _total(node: PairNode, state: State) -> tuple[int, int | None]:
    if isinstance(node, LazyRepeater):
        return _repeated(node, state)
    if isinstance(node, LazyIteratorMultiplexer):
        position, total = 0, 0
        endless = False
        for source, its_state, drained in zip(node.sources, state["sources"], state["drained"], strict=True):
            at, length = _total(source, its_state)
            endless = endless or length is None
            total += length or 0
            position += (length or 0) if drained else at
        return position, None if endless else total
    if isinstance(node, OrderedNode):
        stages = [read_stage(stage) for stage in Saved(state).children("stages")]
        return int(state["position"]), node.order.count(stages)
    raise TypeError(f"no progress is known of a {type(node).__name__}")


def _repeated(node: LazyRepeater, state: State) -> tuple[int, int | None]:
    at, length = _total(node.source, state["source"])
    if length is None:
        return at, None
    # Earlier repeats visited everything, even if this one resumes the remainder of other ranks.
    whole = len(node.source)
    position = state["repeat"] * whole + at
    return position, None if node.times is None else node.times * whole
