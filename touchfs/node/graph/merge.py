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

import importlib
from collections.abc import Sequence
from functools import partial
from typing import Literal

from touchfs.core.errors import UsageError
from touchfs.core.token import State
from touchfs.node.core.iteration import ENDED
from touchfs.node.core.pair_node import NODE_CLASSES, PairNode
from touchfs.node.core.ranks import Ranks
from touchfs.node.core.saved import Saved
from touchfs.node.graph.state import open_envelope
from touchfs.node.public_names import NODE_MODULES


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
    position = _class_of(kind, where).merge(
        Ranks(kind, states, epoch, lock_step, partial(_merged, lock_step=lock_step))
    )
    ended = {ENDED: True} if all(state.has(ENDED) for state in states) else {}
    return {"node": kind, "config": config, "epoch": epoch, **position, **ended}


def _class_of(kind: str, where: str) -> type[PairNode]:
    """Return the node class of a name: ours, or else the only one of that name that the program has imported."""
    if kind in NODE_MODULES:  # a program that only merges has imported none
        importlib.import_module(NODE_MODULES[kind])
    found = NODE_CLASSES.get(kind, {})
    classes = [found[module] for module in found if module.startswith("touchfs.")] or list(found.values())
    if not classes:
        raise UsageError(f"{where}: no node class {kind!r:.80} is imported: import the module that defines it")
    if len(classes) > 1:
        raise UsageError(f"{where}: the modules {', '.join(sorted(found))} each define a {kind}: rename all but one")
    return classes[0]
