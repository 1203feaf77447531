"""Merging the positions of all ranks in an order: the positions that no rank has reached are left for any ranks.

Ranks that take batches have one position between two of these, and their workers have gone through the first ones.
"""

from __future__ import annotations

from collections.abc import Sequence

from touchfs.core.errors import FormatError, UsageError
from touchfs.core.token import State
from touchfs.node.core.ranks import Ranks
from touchfs.node.core.saved import Saved
from touchfs.node.order.batches import BATCHES, SHARED, own_of
from touchfs.node.order.epoch import positions_left, read_stages
from touchfs.node.order.partition import Partition
from touchfs.node.order.remainder import Stage


def merge_positions(ranks: Ranks) -> State:
    """Return the merged position of nodes with an order. Raises UsageError for states that do not belong together."""
    states = ranks.states
    if any(isinstance(part := state.get("partition"), dict) and part.get("kind") == BATCHES for state in states):
        return _merge_batches(ranks)
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
    stages = read_stages(in_epoch[0])
    if any(read_stages(state) != stages or _since(state) != _since(in_epoch[0]) for state in in_epoch):
        raise UsageError(f"{ranks.where}: the ranks resumed from different states")
    size = positions_left(in_epoch[0])
    cursors = [0] * old.world_size
    for state, part in zip(states, parts, strict=True):
        # In lock step the state is of another rank, which may have one position more.
        count, position = part.count(size), state.integer("position", _partition(state).count(size))
        if state.integer("epoch") > ranks.epoch:
            if position or read_stages(state):
                raise UsageError(
                    f"{state.where}: rank {part.rank} has already begun epoch {ranks.epoch + 1}, "
                    f"others are in {ranks.epoch}"
                )
            position = count
        cursors[part.rank] = min(position, count)
    if any(cursors):
        stages = [*stages, Stage(old.kind, old.tail, tuple(cursors))]
    return {
        "position": 0,
        "partition": None,
        "stages": [stage.as_json() for stage in stages],
        **_of_sources(states, in_epoch[0]),
    }


def _merge_batches(ranks: Ranks) -> State:
    in_epoch = ranks.in_epoch()
    first, parts = in_epoch[0], [state.child("partition") for state in ranks.states]
    for part in parts:
        part.refuse_others((*SHARED, "own"))
    shared = {name: parts[0].get(name) for name in SHARED}
    if any({name: part.get(name) for name in SHARED} != shared for part in parts):
        raise UsageError(f"{ranks.where}: the ranks took different batches")
    if any(
        (state.get("stages"), state.get("position"), _since(state))
        != (first.get("stages"), first.get("position"), _since(first))
        for state in in_epoch
    ):
        there = sorted({state.integer("position") for state in ranks.states})
        raise UsageError(f"{ranks.where}: the ranks are at different batches, or began at different ones: {there}")
    position, left, size = first.integer("position"), positions_left(first), parts[0].integer("global_batch")
    if all(part.get("own") is None for part in parts):
        begun = [state.integer("position") for state in ranks.states if state.integer("epoch") > ranks.epoch]
        # Those that have begun none may be at the end of this one, where "drop" leaves up to a batch.
        if begun and (any(begun) or left - position > (size - 1 if shared["tail"] == "drop" else 0)):
            raise UsageError(f"{ranks.where}: some ranks have begun epoch {ranks.epoch + 1}")
    else:
        position = min(position + size * _whole_batches(ranks, -(-(left - position) // size)), left)
    units = {"units": left} if first.has("units") else {}
    partition = {**shared, "own": None}
    return {
        "position": position,
        "partition": partition,
        "stages": first.get("stages"),
        **units,
        **_of_sources(in_epoch, first),
    }


def _whole_batches(ranks: Ranks, all_of_them: int) -> int:
    """Return how many batches all workers together have gone through."""
    done: dict[int, int] = {}
    workers = own_of(ranks.in_epoch()[0].child("partition"))[3]
    for state in ranks.states:
        _, _, worker, of, batches, taken = own_of(state.child("partition"))
        if taken or of != workers:
            raise UsageError(f"{state.where} is from within a batch, or of other workers: save all after whole batches")
        if worker >= workers or batches > all_of_them:
            raise FormatError(f"{state.where} has taken more than there is: the state is damaged")
        if state.integer("epoch") > ranks.epoch:
            batches = len(range(worker, all_of_them, workers))
        if done.setdefault(worker, worker + batches * workers) != worker + batches * workers:
            raise UsageError(f"{ranks.where}: the ranks are at different batches")
    if sorted(done) != list(range(workers)):
        raise UsageError(f"{ranks.where}: there are states of workers {sorted(done)} of {workers}: give those of all")
    if max(done.values()) - min(done.values()) >= workers:
        raise UsageError(f"{ranks.where}: the workers' states are not from one moment")
    return min(done.values())


def _of_sources(states: Sequence[Saved], first: Saved) -> State:
    """Return what the sources of a mixture by length had had where the first rank goes on, and what all of `states` say
    as the first one: where the sources went on over other shards.
    """
    taken = [state.child("taken") for state in states if state.has("taken")]
    earliest = {"taken": min(taken, key=lambda each: sum(each.integers("counts"))).fields()} if taken else {}
    return {**earliest, **_since(first)}


def _since(state: Saved) -> State:
    return {"since": state.get("since")} if state.has("since") else {}


def _partition(state: Saved) -> Partition:
    if state.get("partition") is None:
        raise UsageError(
            f"{state.where} is merged already, and no rank has continued from it: it fits any ranks as it is"
        )
    part = state.child("partition")
    return Partition(part.integer("rank"), part.integer("world_size"), str(part.get("kind")), str(part.get("tail")))
