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
from typing import Literal

from touchfs.errors import UsageError
from touchfs.node.core.saved import Saved
from touchfs.node.graph.state import open_envelope
from touchfs.node.order.partition import Partition
from touchfs.node.order.remainder import Stage, read_stage, remainders
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
    merged = _merge([Saved(envelope["state"]) for envelope in envelopes], cursor == "global")
    return {**envelopes[0], "state": merged}


def _merge(ranks: list[Saved], lock_step: bool) -> State:
    if all(rank.only("source") for rank in ranks):
        # A foreign node that saves its source and nothing else.
        return {"source": _merge([rank.child("source") for rank in ranks], lock_step)}
    kinds = {str(rank.get("node")) for rank in ranks}
    if len(kinds) > 1:
        raise UsageError(f"{ranks[0].where}: states of different nodes, {' and '.join(sorted(kinds))}")
    epoch = min(rank.integer("epoch") for rank in ranks)
    if any(rank.integer("epoch") > epoch + 1 for rank in ranks):
        raise UsageError(f"{ranks[0].where}: the ranks are more than one epoch apart")
    (kind,) = kinds
    for rank in ranks:
        if rank.has("given_seed"):
            raise UsageError(
                f"{rank.where}: the {kind} has seed={rank.get('given_seed')!r:.20}, which was drawn: "
                "only a graph with integer seeds can resume with other ranks"
            )
    if all(rank.only("node", "epoch", "state") for rank in ranks):
        inner = _merge([rank.child("state") for rank in ranks], lock_step)
        return {"node": kind, "epoch": epoch, "state": inner}
    config = ranks[0].child("config").fields()
    for rank in ranks:
        if rank.child("config").fields() != config:
            raise UsageError(f"{rank.where}: the ranks' states are of different {kind}: {rank.get('config')}, {config}")
    state = {"node": kind, "config": config, "epoch": epoch}
    if all(rank.has("partition") for rank in ranks):
        return {**state, **_merge_ordered(ranks, epoch, lock_step)}
    if kind == "LazyMapper" or (kind == "LazyFilter" and not lock_step):
        return {**state, "source": _merge([rank.child("source") for rank in ranks], lock_step)}
    if kind == "LazyCutMixer":
        _refuse_counted(ranks)
        return {**state, "taken": 0, "source": _merge([rank.child("source") for rank in ranks], lock_step)}
    if kind == "LazyRepeater":
        return {**state, **_merge_repeater(ranks, epoch, lock_step)}
    if kind == "LazyIteratorChain" and not lock_step:
        return {**state, **_merge_chain(ranks, epoch)}
    if kind == "LazyIteratorMultiplexer" and not lock_step:
        return {**state, **_merge_multiplexer(ranks, epoch)}
    how = "with cursor='global'" if lock_step else "with another number of ranks"
    raise UsageError(f"{ranks[0].where}: a {kind} cannot resume {how}: its state is one rank's own")


def _merge_ordered(ranks: list[Saved], epoch: int, lock_step: bool) -> State:
    parts = [_partition(rank) for rank in ranks]
    old = parts[0]
    if lock_step:
        parts = [Partition(rank, old.world_size, old.kind, old.tail) for rank in range(old.world_size)]
        ranks = ranks * old.world_size
    if sorted(part.rank for part in parts) != list(range(old.world_size)):
        raise UsageError(
            f"{ranks[0].where}: there are states of ranks {sorted(part.rank for part in parts)} of {old.world_size}: "
            "give each once"
        )
    if {(part.world_size, part.kind, part.tail) for part in parts} != {(old.world_size, old.kind, old.tail)}:
        raise UsageError(f"{ranks[0].where}: the ranks were of different partitions")
    within = [rank for rank in ranks if rank.integer("epoch") == epoch]
    stages = _stages(within[0])
    if any(_stages(rank) != stages for rank in within):
        raise UsageError(f"{ranks[0].where}: the ranks resumed from different states")
    length = within[0].child("config").integer("length")
    size = ([length] + [left.size for left in remainders(length, stages)])[-1]
    cursors = [0] * old.world_size
    for rank, part in zip(ranks, parts, strict=True):
        # In lock step the state is of another rank, which may have one position more.
        count, position = part.count(size), rank.integer("position", _partition(rank).count(size))
        if rank.integer("epoch") > epoch:
            if position or _stages(rank):
                raise UsageError(
                    f"{rank.where}: rank {part.rank} has already begun epoch {epoch + 1}, others are in {epoch}"
                )
            position = count
        cursors[part.rank] = min(position, count)
    if any(cursors):
        stages = [*stages, Stage(old.kind, old.tail, tuple(cursors))]
    return {"position": 0, "partition": None, "stages": [stage.as_json() for stage in stages]}


def _merge_repeater(ranks: list[Saved], epoch: int, lock_step: bool) -> State:
    """Merge repeaters. The epoch of the merged source determines the repeat."""
    source = _merge([rank.child("source") for rank in ranks], lock_step)
    times = ranks[0].child("config").get("times")
    repeat = int(source["epoch"]) - epoch * (times or 1)
    return {"source": source, "repeat": repeat if times is None else min(repeat, times - 1)}


def _refuse_counted(ranks: list[Saved]) -> None:
    for rank in ranks:
        if taken := rank.integer("taken"):
            raise UsageError(
                f"{rank.where}: {taken} items had no tokens, so their noise depends on how many this rank took: "
                "to resume with other ranks, mix into indexed items"
            )


def _merge_chain(ranks: list[Saved], epoch: int) -> State:
    sources = _merge_sources(ranks)
    current = min(rank.integer("current", len(sources)) for rank in ranks if rank.integer("epoch") == epoch)
    return {"current": current, "sources": sources}


def _merge_multiplexer(ranks: list[Saved], epoch: int) -> State:
    within = [rank for rank in ranks if rank.integer("epoch") == epoch]
    if len(within) < len(ranks) and within[0].child("config").flag("stop_early"):
        raise UsageError(f"{ranks[0].where}: some ranks have stopped early, so the common remainder is not defined")
    sources = _merge_sources(ranks)
    flags = [rank.flags("drained", len(sources)) for rank in within]
    return {
        "sources": sources,
        "drained": [all(column) for column in zip(*flags, strict=True)],
        "drawn": max(rank.integer("drawn") for rank in within),
    }


def _merge_sources(ranks: list[Saved]) -> list[State]:
    children = [rank.children("sources") for rank in ranks]
    if len(set(map(len, children))) > 1:
        raise UsageError(f"{ranks[0].where}: the ranks' states have different numbers of sources")
    return [_merge(list(column), lock_step=False) for column in zip(*children, strict=True)]


def _partition(rank: Saved) -> Partition:
    if rank.get("partition") is None:
        raise UsageError(
            f"{rank.where} is merged already, and no rank has continued from it: it fits any ranks as it is"
        )
    part = rank.child("partition")
    return Partition(part.integer("rank"), part.integer("world_size"), str(part.get("kind")), str(part.get("tail")))


def _stages(rank: Saved) -> list[Stage]:
    return [read_stage(stage) for stage in rank.children("stages")]
