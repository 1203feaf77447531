"""Elastic resume: merging the states of all old ranks into one state that fits any number of new ranks.

The merge is defined on the epoch's global order: the new ranks share the positions that no old rank has reached
(`touchfs.node.order.remainder`), so each remaining sample comes exactly once. The state of one rank does not contain
the positions of the others, so it is refused at another world size. If the ranks step in lock step over one partitioned
dataset, `cursor="global"` takes one rank's position as that of all. A rank that has finished the epoch (or repeat)
while others have not counts as being at its end; a rank that has begun the next one is too far ahead, and is refused.

Nodes that buffer items, or count the items of one rank, cannot be merged and are refused. Noise is seeded by tokens, so
an item has the same noise on any rank; a mixer whose source has no tokens counts items, and is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NoReturn

import touchfs.node
from touchfs.errors import UsageError
from touchfs.node.core.iteration import ENDED
from touchfs.node.core.pair_node import NODE_CLASSES
from touchfs.node.core.saved import Saved
from touchfs.node.graph.state import open_envelope
from touchfs.token import State


def merge_states(states: Sequence[State], cursor: Literal["ranks", "global"] = "ranks") -> State:
    """Merge the states of all ranks, in any order, into one; with `cursor="global"`, convert the state of one rank.

    Raises FormatError for a damaged state, UsageError for states that do not belong together or cannot be merged.
    """
    if cursor not in ("ranks", "global"):
        raise UsageError(f"the cursor is 'ranks' or 'global', not {cursor!r}")
    envelopes = list(map(open_envelope, states))
    if not envelopes or (cursor == "global" and len(envelopes) > 1):
        raise UsageError(f"{len(envelopes)} states: give those of all old ranks, or one with cursor='global'")
    for envelope in envelopes:
        if envelope["graph"] != envelopes[0]["graph"]:
            raise UsageError(f"states of different graphs: {envelope['graph']} and {envelopes[0]['graph']}")
    merged = _merged([Saved(envelope["state"]) for envelope in envelopes], cursor == "global")
    return {**envelopes[0], "state": merged}


@dataclass(frozen=True, slots=True)
class Ranks:
    """The states of one node, of the class `kind`, on all ranks.

    Each is of `epoch` or of the next one. With `lock_step` there is one state, and all ranks are at its position.
    """

    kind: str
    states: list[Saved]
    epoch: int
    lock_step: bool

    @property
    def where(self) -> str:
        """The path of the node in the state of the graph."""
        return self.states[0].where

    def in_epoch(self) -> list[Saved]:
        """Return the states of `epoch`."""
        return [state for state in self.states if state.integer("epoch") == self.epoch]

    def source(self) -> State:
        """Return the merged state of the node's only source."""
        return _merged([state.child("source") for state in self.states], self.lock_step)

    def sources(self) -> list[State]:
        """Return the merged states of the node's sources."""
        children = [state.children("sources") for state in self.states]
        if len(set(map(len, children))) > 1:
            raise UsageError(f"{self.where}: the ranks' states have different numbers of sources")
        return [_merged(list(column), self.lock_step) for column in zip(*children, strict=True)]

    def refuse(self) -> NoReturn:
        """Raise UsageError: states of this node cannot be merged."""
        how = "with cursor='global'" if self.lock_step else "with another number of ranks"
        raise UsageError(f"{self.where}: a {self.kind} cannot resume {how}: its state is one rank's own")

    def refuse_lock_step(self) -> None:
        """Raise UsageError with `lock_step`: the ranks of this node are not in step."""
        if self.lock_step:
            self.refuse()


def _merged(states: list[Saved], lock_step: bool) -> State:
    if all(state.only("source") for state in states):
        # A foreign node that saves its source and nothing else.
        return {"source": _merged([state.child("source") for state in states], lock_step)}
    where = states[0].where
    kinds = {str(state.get("node")) for state in states}
    if len(kinds) > 1:
        raise UsageError(f"{where}: states of different nodes, {' and '.join(sorted(kinds))}")
    epoch = min(state.integer("epoch") for state in states)
    if any(state.integer("epoch") > epoch + 1 for state in states):
        raise UsageError(f"{where}: the ranks are more than one epoch apart")
    (kind,) = kinds
    for state in states:
        if state.has("given_seed"):
            raise UsageError(
                f"{state.where}: the {kind} has seed={state.get('given_seed')!r:.20}, which was drawn: "
                "only a graph with integer seeds can resume with other ranks"
            )
    if all(state.only("node", "epoch", "state") for state in states):
        inner = _merged([state.child("state") for state in states], lock_step)
        return {"node": kind, "epoch": epoch, "state": inner}
    config = states[0].child("config").fields()
    for state in states:
        if state.child("config").fields() != config:
            raise UsageError(
                f"{state.where}: the ranks' states are of different {kind}: {state.get('config')}, {config}"
            )
    if kind in touchfs.node.__all__:
        # Nodes are imported at their first use, and a program that only merges uses none.
        getattr(touchfs.node, kind)
    if kind not in NODE_CLASSES:
        raise UsageError(f"{where}: no node class {kind!r:.80} is imported: import the module that defines it")
    position = NODE_CLASSES[kind].merge(Ranks(kind, states, epoch, lock_step))
    ended = {ENDED: True} if all(state.has(ENDED) for state in states) else {}
    return {"node": kind, "config": config, "epoch": epoch, **position, **ended}
