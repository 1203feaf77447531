"""A mix of several sources: each item comes from a source drawn by weight.

When a source ends, the others continue, or with `stop_early` the whole mix ends. The k-th draw of an epoch is a
function of (seed, epoch, k), so the state of the random numbers is k.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

from touchfs.core.errors import UsageError
from touchfs.core.token import State
from touchfs.node.core.foreign import begin
from touchfs.node.core.iteration import Iteration, Pair
from touchfs.node.core.iterator_node import is_partitioned
from touchfs.node.core.ranks import Ranks
from touchfs.node.core.saved import Saved
from touchfs.node.core.seed import Seed, resolve_seed
from touchfs.node.core.sources import SourcesNode
from touchfs.node.order.draws import draws


class LazyIteratorMultiplexer(SourcesNode):
    """Items of `sources`, each drawn by `weights` (equal by default). A token is `(source_index, source_token)`.

    `seed` seeds the draws. An epoch ends when all sources have ended, or with `stop_early` when the first one has.
    Raises UsageError unless there is one finite weight above 0 for each source.
    """

    def __init__(
        self, *sources: Any, stop_early: bool = False, weights: Sequence[float] | None = None, seed: Seed = 0
    ) -> None:
        super().__init__(*sources)
        self.stop_early = stop_early
        self.weights = check_weights(weights, len(sources))
        self.seed = resolve_seed(seed, any(map(is_partitioned, self.sources)))

    def iteration(self, epoch: int, saved: Saved) -> MultiplexerIteration:
        return MultiplexerIteration(self, epoch, saved)

    def config(self) -> State:
        return {
            "sources": len(self.sources),
            "stop_early": self.stop_early,
            "weights": self.weights,
            "seed": int(self.seed),
        }

    @classmethod
    def merge(cls, ranks: Ranks) -> State:
        ranks.refuse_lock_step()
        in_epoch = ranks.in_epoch()
        if len(in_epoch) < len(ranks.states) and in_epoch[0].child("config").flag("stop_early"):
            raise UsageError(f"{ranks.where}: some ranks have stopped early, so the common remainder is not defined")
        sources = ranks.sources()
        flags = [state.flags("drained", len(sources)) for state in in_epoch]
        return {
            "sources": sources,
            "drained": [all(column) for column in zip(*flags, strict=True)],
            "drawn": max(state.integer("drawn") for state in in_epoch),
        }

    def total_progress(self, state: State) -> tuple[int, int | None]:
        position, total = 0, 0
        endless = False
        for source, its_state, drained in zip(self.sources, state["sources"], state["drained"], strict=True):
            at, length = source.total_progress(its_state)
            endless = endless or length is None
            total += length or 0
            position += (length or 0) if drained else at
        return position, None if endless else total

    def paths(self, tokens: Sequence[Any]) -> list[bytes]:
        # A source looks up many paths faster than one at a time.
        by_source: list[list[Any]] = [[] for _ in self.sources]
        for number, token in tokens:
            by_source[number].append(token)
        paths = [iter(source.paths(own)) for source, own in zip(self.sources, by_source, strict=True)]
        return [next(paths[number]) for number, _ in tokens]

    def __len__(self) -> int:
        if self.stop_early:
            raise TypeError("a LazyIteratorMultiplexer that stops early has no length")
        return sum(map(len, self.sources))


class MultiplexerIteration(Iteration):
    """The `drained` sources have ended, and their states are those of their next epochs. `drawn` counts the draws."""

    node: LazyIteratorMultiplexer

    def __init__(self, node: LazyIteratorMultiplexer, epoch: int, saved: Saved) -> None:
        super().__init__(node, epoch)
        count = len(node.sources)
        self.sources = [
            begin(source, epoch, state)
            for source, state in zip(node.sources, saved.children("sources", count), strict=True)
        ]
        self.drained = saved.flags("drained", count)
        self.drawn = saved.integer("drawn")

    def walk(self) -> Iterator[Pair]:
        numbers = draws(self.seed, self.epoch, self.drawn)
        while not all(self.drained):
            live = [index for index, drained in enumerate(self.drained) if not drained]
            *edges, total = accumulate(self.node.weights[index] for index in live)
            for number in numbers:
                self.drawn += 1
                index = live[bisect_right(edges, number * total)]
                pair = next(self.sources[index].pairs, None)
                if pair is None:
                    break
                token, make = pair
                yield None if token is None else (index, token), make
            self.drained[index] = True
            if self.node.stop_early:
                return

    def position(self) -> State:
        return {
            "sources": [source.state() for source in self.sources],
            "drained": list(self.drained),
            "drawn": self.drawn,
        }


def check_weights(weights: Sequence[float] | None, count: int) -> list[float]:
    """Return `count` weights as floats, equal by default. Raises UsageError."""
    weights = [1.0] * count if weights is None else [float(weight) for weight in weights]
    if len(weights) != count:
        raise UsageError(f"there are {count} sources and {len(weights)} weights: give one for each")
    if not all(math.isfinite(weight) and weight > 0 for weight in weights):
        raise UsageError(f"weights are numbers above 0, not {weights}: leave out unused sources")
    return weights
