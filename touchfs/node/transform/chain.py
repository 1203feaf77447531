"""Several sources in sequence, or all of them shuffled together.

The global shuffle (`shuffle_iters`) permutes the ordinals of all sources as one dataset. The sources must then be
indexed and have a length, and only the chain has a rank and a world size.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from functools import cached_property, partial
from itertools import accumulate, chain
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from touchfs.core.errors import UsageError
from touchfs.core.token import State, Token
from touchfs.node.core.description import describe, drawn_seeds_of, take_described_seeds
from touchfs.node.core.foreign import begin, count_ordinals, end_of_pass, epoch_before, extended, locate, maker
from touchfs.node.core.iteration import Iteration, Pair
from touchfs.node.core.iterator_node import kind_of
from touchfs.node.core.ranks import Ranks
from touchfs.node.core.saved import Saved
from touchfs.node.core.seed import DrawnSeed, Seed
from touchfs.node.core.sources import SourcesNode
from touchfs.node.order.batches import part_of
from touchfs.node.order.order import Order, order_seed, window_of
from touchfs.node.order.ordered_node import OrderedNode, OrderIteration
from touchfs.node.transform.mapper import below_maps


class LazyIteratorChain(SourcesNode, OrderedNode):
    """The items of one source after the other. A token is `(source_index, source_token)`.

    With `shuffle_iters` the items of all sources come in one globally shuffled order, that of `seed` + epoch, and rank
    `rank` (from 0) of `world_size` visits its part as `Partition(rank, world_size, partition, tail)`. `global_batch`,
    `window` and `lanes` are as for a `LazyGlobalShuffle`.

    Raises UsageError for sources that cannot be shuffled globally, and for a world size without `shuffle_iters`.
    """

    def __init__(
        self,
        *sources: Any,
        shuffle_iters: bool = False,
        seed: Seed = 0,
        rank: int = 0,
        world_size: int = 1,
        partition: str = "stride",
        tail: str = "keep",
        global_batch: int | None = None,
        window: int | None = None,
        lanes: int = 1,
    ) -> None:
        super().__init__(*sources)
        self.shuffle_iters = shuffle_iters
        if (world_size != 1 or global_batch is not None) and not shuffle_iters:
            raise UsageError("a chain without shuffle_iters is not partitioned: give that to its sources")
        part = part_of(rank, world_size, partition, tail, global_batch, lanes)
        seed = order_seed(shuffle_iters, seed, world_size > 1)
        size = self.starts[-1] if shuffle_iters else 0
        self.order = Order(size, seed, part, window=window_of(seed, window, lanes))

    @property
    def has_order(self) -> bool:
        return self.shuffle_iters

    def obstacle(self) -> str | None:
        # A global shuffle does not use the states of the sources.
        return None if self.shuffle_iters else super().obstacle()

    @cached_property
    def starts(self) -> list[int]:
        """The first ordinal of each source in a global shuffle, and the total length."""
        return list(accumulate(map(_size, self.sources), initial=0))

    def iteration(self, epoch: int, saved: Saved) -> Iteration:
        return OrderIteration(self, epoch, saved) if self.shuffle_iters else ChainIteration(self, epoch, saved)

    def pair_at(self, ordinal: int, epoch: int) -> Pair:
        index, token = self.token_of(ordinal, epoch)
        return (index, token), partial(maker(self.sources[index]), token)

    def token_of(self, ordinal: int, epoch: int) -> tuple[int, Token]:
        index = bisect_right(self.starts, ordinal) - 1
        return index, self.sources[index].token_at(ordinal - self.starts[index], epoch)

    def lengths_at(self, ordinals: NDArray[np.int64], epoch: int, measure: str) -> NDArray[np.int64]:
        indexes, lengths = np.searchsorted(self.starts, ordinals, "right") - 1, np.empty_like(ordinals)
        for index in np.unique(indexes).tolist():
            its = np.flatnonzero(indexes == index)
            node = below_maps(self.sources[index])
            if not isinstance(node, OrderedNode):
                return super().lengths_at(ordinals, epoch, measure)
            lengths[its] = node.lengths_at(ordinals[its] - self.starts[index], epoch, measure)
        return lengths

    def ordinal_of(self, token: Token) -> int:
        index, token = self.parts_of(token)
        return self.starts[index] + int(self.sources[index].ordinal_of(token))

    def config(self) -> State:
        config = {"sources": len(self.sources), "shuffle_iters": self.shuffle_iters}
        shuffled = {**self.order.config(), "data": list(map(describe, self.described()))} if self.shuffle_iters else {}
        return config | shuffled

    def datasets(self) -> list[OrderedNode]:
        nodes = [below_maps(source) for source in self.sources]
        parts = [node.datasets() if isinstance(node, OrderedNode) else [] for node in nodes]
        return list(chain.from_iterable(parts)) if all(parts) else []

    def described(self) -> list[Any]:
        # In a global shuffle a state does not contain the sources' states, so `config` must identify the sources.
        return self.sources if self.shuffle_iters else []

    def drawn_seeds(self) -> list[DrawnSeed]:
        return [*super().drawn_seeds(), *drawn_seeds_of(self.described())]

    def take_seeds(self, config: Saved) -> None:
        super().take_seeds(config)
        for source, description in zip(self.described(), config.children("data"), strict=False):
            take_described_seeds(source, description)

    @classmethod
    def merge(cls, ranks: Ranks) -> State:
        if ranks.states[0].child("config").flag("shuffle_iters"):
            return super().merge(ranks)
        ranks.refuse_lock_step()
        sources = ranks.sources()
        firsts, currents = zip(*(_place_in(state, len(sources)) for state in ranks.in_epoch()), strict=True)
        if len(set(firsts)) > 1:
            raise UsageError(f"{ranks.where}: the ranks resumed from different states")
        return {"current": min(currents), "sources": sources, **_first(firsts[0])}

    def extended(self, saved: Saved) -> State:
        """Return `saved` so that each source goes on as it would alone, and what is new of those that have ended comes
        behind the last one.
        """
        if self.shuffle_iters:
            return super().extended(saved)
        self._check(saved)
        count = len(self.sources)
        first, current, states = *_place_in(saved, count), saved.children("sources", count)
        for state in (saved, *states):
            state.integer("epoch")  # or refuse it
        turns = [(first + turn) % count for turn in range(count)]
        ended, ends = turns[:current], {}
        for index in ended:
            end = end_of_pass(self.sources[index], states[index])
            ends[index] = end, extended(self.sources[index], Saved(end, states[index].where))
        sources = [
            state.fields() if index in ends else extended(self.sources[index], state)
            for index, state in enumerate(states)
        ]
        if all(end == after for end, after in ends.values()):
            return {**saved.fields(), "sources": sources}
        for index, (_, after) in ends.items():
            sources[index] = after
        fields = {name: value for name, value in saved.fields().items() if name != "first"}
        return {**fields, "sources": sources, "current": 0, **_first((first + current) % count)}

    def end_of_pass(self, saved: Saved) -> State:
        if self.shuffle_iters:
            return super().end_of_pass(saved)
        return {**saved.fields(), "epoch": epoch_before(saved), "current": len(self.sources)}

    def for_worker(self, worker: int, workers: int) -> Self | None:
        return super().for_worker(worker, workers) if self.shuffle_iters else None

    def locate(self, token: Token, epoch: int) -> State:
        if self.shuffle_iters:
            return super().locate(token, epoch)
        index, inner = self.parts_of(token)
        state = self.begin(epoch).state()
        state["sources"][index] = locate(self.sources[index], inner, epoch)
        return {**state, "current": index}

    def __len__(self) -> int:
        return self.order.count() if self.shuffle_iters else sum(map(len, self.sources))


class ChainIteration(Iteration):
    """Sources take turns from number `first` on, and `current` of them have ended: their states are those of their next
    epochs.
    """

    node: LazyIteratorChain

    def __init__(self, node: LazyIteratorChain, epoch: int, saved: Saved) -> None:
        super().__init__(node, epoch)
        self.sources = [
            begin(source, epoch, state)
            for source, state in zip(node.sources, saved.children("sources", len(node.sources)), strict=True)
        ]
        self.first, self.current = _place_in(saved, len(self.sources))

    def walk(self) -> Iterator[Pair]:
        for current in range(self.current, len(self.sources)):
            self.current, index = current, (self.first + current) % len(self.sources)
            for token, make in self.sources[index].pairs:
                yield None if token is None else (index, token), make
        self.current = len(self.sources)

    def position(self) -> State:
        return {
            "current": self.current,
            "sources": [source.state() for source in self.sources],
            **_first(self.first),
        }


def _place_in(saved: Saved, sources: int) -> tuple[int, int]:
    """Return the source that a pass began with, other than the first one if the data have grown, and how many ended."""
    first = saved.integer("first", sources - 1) if saved.has("first") else 0
    return first, saved.integer("current", sources)


def _first(first: int) -> State:
    return {"first": first} if first else {}


def _size(source: Any) -> int:
    size = count_ordinals(source)
    if size is None:
        raise UsageError(
            f"a global shuffle needs indexed sources of known length, and {kind_of(source)} is not one: "
            "open it with indexed=True, or shuffle a buffer of it"
        )
    return size
