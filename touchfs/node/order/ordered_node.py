"""Nodes that visit ordinals in an order. The state is one integer: the next position."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Self

import numpy as np
from numpy.typing import NDArray

from touchfs.core.errors import FormatError, UsageError
from touchfs.core.token import State, Token
from touchfs.node.core.description import OF_DATA, fingerprints_of, without_data
from touchfs.node.core.foreign import epoch_before
from touchfs.node.core.iteration import Iteration, Pair
from touchfs.node.core.iterator_node import kind_of
from touchfs.node.core.ranks import Ranks
from touchfs.node.core.saved import FRESH, Saved
from touchfs.node.order.batches import BATCHES
from touchfs.node.order.epoch import (
    AnyStage,
    Epoch,
    GrownEpoch,
    LeftByRanks,
    ordinals_of,
    positions_left,
    read_stages,
    size_after,
)
from touchfs.node.order.growth import Fingerprints, Grown, Move
from touchfs.node.order.merge import merge_positions
from touchfs.node.order.order import Order
from touchfs.node.order.partition import KEEP
from touchfs.node.order.partitioned_node import PartitionedNode
from touchfs.node.order.remainder import Remainder, Stage
from touchfs.node.order.windowed import Window
from touchfs.posix.bounded_cache import BoundedCache
from touchfs.store.shard_lists import ShardList, joined, known_list

DAMAGED = "the state does not fit the shards that it is over: one of both is damaged"
# By the fingerprints of both datasets. A move takes some milliseconds and a megabyte for 10,000 shards.
_MOVES: BoundedCache[tuple[Fingerprints, Fingerprints], Move] = BoundedCache(8)


class OrderedNode(PartitionedNode):
    """A node that visits ordinals in an `order`."""

    @property
    def has_order(self) -> bool:
        """False if the order is that of the sources instead."""
        return True

    def order_of(self, epoch: int) -> Order:
        """Return the order of an epoch: some nodes have epochs of different lengths."""
        return self.order

    def lengths_at(self, ordinals: NDArray[np.int64], epoch: int, measure: str) -> NDArray[np.int64]:
        """Return the lengths of the samples at these ordinals in an epoch (`touchfs.core.measure`), shape `(n,)`.

        Raises UsageError if nothing tells them.
        """
        raise UsageError(f"no index tells the lengths of the items of a {kind_of(self)}: open a dataset of shards")

    def for_iteration(self) -> Self:
        """Return a copy for one iteration: it stays as it is, whatever this node goes on to do."""
        node = object.__new__(type(self))
        node.__dict__ |= self.__dict__
        return node

    @abstractmethod
    def pair_at(self, ordinal: int, epoch: int) -> Pair:
        """Return the token of an ordinal in an epoch, and the function that makes its item."""

    @abstractmethod
    def token_of(self, ordinal: int, epoch: int) -> Token:
        """Return the token of an ordinal in an epoch."""

    def tokens_of(self, ordinals: list[int], epoch: int) -> list[Token | None]:
        """Return the tokens of several ordinals in an epoch."""
        return [self.token_of(ordinal, epoch) for ordinal in ordinals]

    @abstractmethod
    def ordinal_of(self, token: Token) -> int:
        """Return the ordinal of a token."""

    def datasets(self) -> list[OrderedNode]:
        """Return the nodes of the datasets whose samples the ordinals are, one behind the other; else none."""
        return [self] if "fingerprint" in self.config() else []

    @property
    def can_grow(self) -> bool:
        """True if states go on over other shards."""
        return bool(self.datasets())

    def goes_on_with_other(self, name: str) -> bool:
        return name in ("length", "fingerprint", "data") and self.can_grow and all(fingerprints_of(self.config()))

    def shard_list(self) -> ShardList | None:
        """Return the shards of the data; None where nothing says which they are."""
        return None

    def left_of(self, epoch: int, stages: Sequence[AnyStage], data: Grown | None = None) -> Epoch:
        """Return what is left of an epoch after `stages`, which is over other `data` in the end if given.

        Raises UsageError if the shards of data before are unknown, FormatError if the stages do not fit them.
        """
        coming = [*(stage for stage in stages if isinstance(stage, Grown)), data]
        left: Epoch = self._order_over(coming[0], epoch).whole(epoch)
        for stage in stages:
            if isinstance(stage, Stage):
                left = LeftByRanks(left, Remainder(left.size, stage))
            else:
                coming = coming[1:]
                left = grown = self.go_on(left, stage, coming[0], epoch)
                if (grown.old_left, grown.size, grown.lost) != (stage.left, stage.size, stage.lost):
                    raise FormatError(DAMAGED)
        return left

    def _order_over(self, data: Grown | None, epoch: int) -> Order:
        if data is None:
            return self.order_of(epoch)
        window = self.order.window
        if window is not None and data.window is not None:
            window = Window(data.window, window.lanes)
        return replace(self.order, size=data.length, window=window)

    def go_on(self, left: Epoch, before: Grown, now: Grown | None, epoch: int) -> GrownEpoch:
        """Return an epoch of which so much was left over the data `before`, over those `now`; None is these data.

        Raises as `left_of`.
        """
        here = tuple(map(str, fingerprints_of(self.config()))) if now is None else now.fingerprints

        def make() -> Move:
            shards = self._shards() if now is None else _known(now.fingerprints)
            return Move(_known(before.fingerprints), shards)

        move, order = _MOVES.get((before.fingerprints, here), make), self._order_over(now, epoch)
        if (move.kept.size + move.lost.size, move.moved.size + move.new.size) != (before.length, order.size):
            raise FormatError(DAMAGED)
        return GrownEpoch(left, move, replace(order, size=move.new.size).whole(epoch))

    def _shards(self) -> ShardList:
        lists = [node.shard_list() for node in self.datasets()]
        if not all(lists):
            raise UsageError(
                f"nothing says which shards the items of this {kind_of(self)} are of, as where they were chosen by "
                "position: its states go on over the same items only"
            )
        return _as_one([each for each in lists if each is not None])

    def mark(self, epoch: int, stages: Sequence[AnyStage], position: int) -> State:
        """Return fields for a state at a position of what stages left of an epoch, by which it is restored at once."""
        return {}

    def recall(self, saved: Saved) -> None:
        """Use the fields of `mark` in a `saved` state, if it has them. Raises FormatError."""

    def advanced(self, saved: Saved, count: int) -> State:
        """Return the state `count` items after `saved`, over any shards. Raises UsageError if its epoch ends before."""
        self._check(saved, list(self.config()))
        size = positions_left(saved)
        part, own = self.order.partition.resumed(saved, size)
        if own + count > part.count(size):
            raise UsageError(f"{saved.where} has no {count} more items in its epoch")
        return {**saved.fields(), **part.state(own + count, size)}

    def extended(self, saved: Saved) -> State:
        if not self.can_grow:
            is_same = self.has_order and saved.child("config").fields() == self.config()
            return saved.fields() if is_same else super().extended(saved)
        self._check(saved, (*OF_DATA, "data"))
        here = self.config()  # with the seed of the state, if one was drawn
        config, epoch = saved.child("config"), saved.integer("epoch")
        there = config.fields()
        if there == here:
            return saved.fields()
        if without_data(there.get("data")) != without_data(here.get("data")):
            self._check(saved, OF_DATA)  # or refuse it
        fingerprints = known_fingerprints(there, saved.where)
        state = merged_of_ranks(self, saved)
        merged, length = Saved(state, saved.where), config.integer("length")
        stages = read_stages(merged)
        if position := merged.integer("position", size_after(length, stages)):
            stages.append(Stage("stride", KEEP, (position,)))
        if stages:  # else nothing has come, and the epoch is one of all data
            data = Grown(length, there.get("window"), fingerprints, 0, 0, 0)
            grown = self.go_on(self.left_of(epoch, stages, data), data, None, epoch)
            new = grown.size - grown.old_left
            stages.append(replace(data, left=grown.old_left, new=new, lost=grown.lost))
        all_stages = [stage.as_json() for stage in stages]
        return {**state, "config": here, "position": 0, "partition": None, "stages": all_stages}

    def end_of_pass(self, saved: Saved) -> State:
        state, length = merged_of_ranks(self, saved), saved.child("config").integer("length")
        if read_stages(Saved(state)) or state["position"]:
            raise FormatError(f"{saved.where} is not at the start of an epoch: the state is damaged")
        stages = [Stage("stride", KEEP, (length,)).as_json()]
        return {**state, "epoch": epoch_before(saved), "partition": None, "stages": stages}

    def token_at(self, ordinal: int, epoch: int) -> Token:
        """Return the token of an ordinal in an epoch, for a global shuffle above.

        Raises UsageError if this is partitioned.
        """
        self.refuse_ranks()
        return self.token_of(ordinal, epoch)

    def refuse_ranks(self) -> None:
        """Raise UsageError if this is one rank's part, which cannot be a source of a global shuffle."""
        if self.order.partition.is_part:
            raise UsageError("a source of a global shuffle is not partitioned: give rank and world_size to the shuffle")

    @classmethod
    def merge(cls, ranks: Ranks) -> State:
        return merge_positions(ranks)

    def total_progress(self, state: State) -> tuple[int, int | None]:
        saved = Saved(state)
        size = positions_left(saved)
        part, own = self.order.partition.resumed(saved, size)
        return part.before + own, part.before + part.count(size)

    def seen(self, state: State) -> Iterator[Pair]:
        """Yield the pairs that a pass had given when `state` was taken. Raises as `begin`.

        A state that ranks share, or that was merged of theirs, has those of all ranks.
        """
        iteration, node = self.begin(saved=Saved(state)), self
        if isinstance(iteration, OrderIteration):
            ordinals, node = iteration.seen(), iteration.node
        else:  # at the end of its epoch
            order = self.order_of(iteration.epoch)
            ordinals = ordinals_of(order.whole(iteration.epoch), order.partition, 0)
        return (node.pair_at(ordinal, iteration.epoch) for ordinal in ordinals)

    def locate(self, token: Token, epoch: int) -> State:
        self.make(token)
        return OrderIteration(self, epoch, own=self.order_of(epoch).own(self.ordinal_of(token), epoch)).state()

    def __len__(self) -> int:
        """Return how many ordinals this rank visits in an epoch."""
        return self.order.count()


def known_fingerprints(config: State, where: str) -> Fingerprints:
    """Return the fingerprints of the data in the `config` of a state. Raises UsageError if it does not know them."""
    fingerprints = fingerprints_of(config)
    if not all(type(each) is str for each in fingerprints):
        raise UsageError(
            f"{where} does not say which shards it is over, as states of datasets do: it goes on over the same items "
            "only"
        )
    return tuple(fingerprints)


def _known(fingerprints: Fingerprints) -> ShardList:
    return _as_one(list(map(known_list, fingerprints)))


def _as_one(lists: list[ShardList]) -> ShardList:
    return lists[0] if len(lists) == 1 else joined(lists, " and ".join(each.what for each in lists))


def merged_of_ranks(node: OrderedNode, saved: Saved) -> State:
    """Return a state that ranks share as one of no partition. Raises UsageError for one rank's own."""
    state, part = saved.fields(), saved.get("partition")
    if isinstance(part, dict) and part.get("kind") != BATCHES and part.get("world_size") != 1:
        raise UsageError(f"{saved.where} is one of several ranks' own: merge those of all with merge_states before")
    if part is not None:
        ranks = Ranks(kind_of(node), [saved], saved.integer("epoch"), False, lambda states: {})
        state |= node.merge(ranks)
    return state


class OrderIteration(Iteration):
    """An iteration whose position is one integer: `own`, this rank's next position."""

    node: OrderedNode

    def __init__(self, node: OrderedNode, epoch: int, saved: Saved = FRESH, own: int = 0) -> None:
        super().__init__(node, epoch)
        self.stages = read_stages(saved)
        self._left = node.left_of(epoch, self.stages)
        self.size = self._left.size
        part = node.order.partition
        self._part, self.own = (part, own) if saved.fresh else part.resumed(saved, self.size)
        self._ordinals = ordinals_of(self._left, self._part, self.own)

    def walk(self) -> Iterator[Pair]:
        pair_at, epoch = self.node.pair_at, self.epoch
        for ordinal in self._ordinals:
            self.own += 1
            yield pair_at(ordinal, epoch)

    def take(self, count: int) -> list[Token | None]:
        taken = self.node.tokens_of(list(islice(self._ordinals, count)), self.epoch)
        self.own += len(taken)
        self.ended = self.ended or len(taken) < count
        return taken

    def seen(self) -> Iterator[int]:
        """Yield the ordinals before the position."""
        return self.node.order_of(self.epoch).seen(self.epoch, self._left, self._part, self.own)

    def position(self) -> State:
        return {**self._part.state(self.own, self.size), "stages": [stage.as_json() for stage in self.stages]}
