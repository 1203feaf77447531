"""Merging the positions of all ranks in an order: the positions that no rank has reached are left for any ranks."""

from __future__ import annotations

from touchfs.core.errors import UsageError
from touchfs.core.token import State
from touchfs.node.core.ranks import Ranks
from touchfs.node.core.saved import Saved
from touchfs.node.order.partition import Partition
from touchfs.node.order.remainder import Stage, read_stage, remainders


def merge_positions(ranks: Ranks) -> State:
    """Return the merged position of nodes with an order. Raises UsageError for states that do not belong together."""
    states = ranks.states
    parts = [_partition(state) for state in states]
    old = parts[0]
    if ranks.lock_step:
        parts = [Partition(rank, old.world_size, old.kind, old.tail) for rank in range(old.world_size)]
        states = states * old.world_size
    if sorted(part.rank for part in parts) != list(range(old.world_size)):
        raise UsageError(
            f"{ranks.where}: there are states of ranks {sorted(part.rank for part in parts)} of {old.world_size}: "
            "give each once"
        )
    if {(part.world_size, part.kind, part.tail) for part in parts} != {(old.world_size, old.kind, old.tail)}:
        raise UsageError(f"{ranks.where}: the ranks were of different partitions")
    in_epoch = ranks.in_epoch()
    stages = _stages(in_epoch[0])
    if any(_stages(state) != stages for state in in_epoch):
        raise UsageError(f"{ranks.where}: the ranks resumed from different states")
    length = in_epoch[0].child("config").integer("length")
    size = ([length] + [left.size for left in remainders(length, stages)])[-1]
    cursors = [0] * old.world_size
    for state, part in zip(states, parts, strict=True):
        # In lock step the state is of another rank, which may have one position more.
        count, position = part.count(size), state.integer("position", _partition(state).count(size))
        if state.integer("epoch") > ranks.epoch:
            if position or _stages(state):
                raise UsageError(
                    f"{state.where}: rank {part.rank} has already begun epoch {ranks.epoch + 1}, "
                    f"others are in {ranks.epoch}"
                )
            position = count
        cursors[part.rank] = min(position, count)
    if any(cursors):
        stages = [*stages, Stage(old.kind, old.tail, tuple(cursors))]
    return {"position": 0, "partition": None, "stages": [stage.as_json() for stage in stages]}


def _partition(state: Saved) -> Partition:
    if state.get("partition") is None:
        raise UsageError(
            f"{state.where} is merged already, and no rank has continued from it: it fits any ranks as it is"
        )
    part = state.child("partition")
    return Partition(part.integer("rank"), part.integer("world_size"), str(part.get("kind")), str(part.get("tail")))


def _stages(state: Saved) -> list[Stage]:
    return [read_stage(stage) for stage in state.children("stages")]
