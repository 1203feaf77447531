"""An endless mix of more sources than can be open at once.

At most `max_open_streams` sources are open, drawn by weight with replacement; a source that ends is replaced by a new
draw. The positions of many passes over many sources are no small state, so this node cannot be saved and has no tokens.
To resume, use a `LazyIteratorMultiplexer` over `LazyRepeater`s.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

from touchfs.core.errors import UsageError
from touchfs.core.token import State, Token
from touchfs.node.core.foreign import begin
from touchfs.node.core.iteration import Iteration, Pair
from touchfs.node.core.iterator_node import is_partitioned, kind_of, refuse_state, resolve_iterator_source
from touchfs.node.core.lhotse_names import refuses
from touchfs.node.core.pair_node import PairNode
from touchfs.node.core.saved import Saved
from touchfs.node.core.seed import Seed, resolve_seed
from touchfs.node.order.draws import draws
from touchfs.node.transform.multiplexer import check_weights


class LazyInfiniteApproximateMultiplexer(PairNode):
    """Items of `sources` drawn by `weights` (equal by default), without end; each source starts again when it ends.

    With `max_open_streams` only that many passes over sources are open at once, and items are drawn from them with
    equal probability. `seed` seeds the draws. It ends only if all sources are empty. It has neither states nor tokens.
    """

    @refuses(stop_early="it draws sources again that have ended, and never stops")
    def __init__(
        self,
        *sources: Any,
        weights: Sequence[float] | None = None,
        seed: Seed = 0,
        max_open_streams: int | None = None,
    ) -> None:
        if max_open_streams is not None and max_open_streams < 1:
            raise UsageError(f"1 or more streams are open at once, not {max_open_streams}")
        self.sources = [resolve_iterator_source(source) for source in sources]
        self.weights = check_weights(weights, len(sources))
        self.seed = resolve_seed(seed, any(map(is_partitioned, self.sources)))
        self.max_open_streams = max_open_streams

    def obstacle(self) -> str:
        return f"a {kind_of(self)} has no state"

    def iteration(self, epoch: int, saved: Saved) -> InfiniteIteration:
        return InfiniteIteration(self, epoch)

    def make(self, token: Token) -> Any:
        raise UsageError(f"{kind_of(self)} cannot rebuild an item from a token")


class InfiniteIteration(Iteration):
    """`passes` counts the passes begun over each source."""

    node: LazyInfiniteApproximateMultiplexer

    def __init__(self, node: LazyInfiniteApproximateMultiplexer, epoch: int) -> None:
        super().__init__(node, epoch)
        self.numbers = draws(node.seed, epoch, 0)
        self.passes = [0] * len(node.sources)
        # The weight of a source found empty becomes 0.
        self.weights = list(node.weights)

    def walk(self) -> Iterator[Pair]:
        few = self.node.max_open_streams
        # With all sources open, a stream is drawn by its weight; otherwise its source was drawn by weight when opened.
        indexes = list(range(len(self.weights))) if few is None else [self.draw(self.weights) for _ in range(few)]
        streams = [self.open_pass(index) for index in indexes]
        while any(self.weights):
            stream = self.draw(self.weights if few is None else [1.0] * few)
            pair = next(streams[stream], None)
            if pair is not None:
                yield None, pair[1]
            elif any(self.weights):
                if few is not None:
                    indexes[stream] = self.draw(self.weights)
                streams[stream] = self.open_pass(indexes[stream])

    def draw(self, weights: Sequence[float]) -> int:
        """Return an index drawn by weight."""
        *edges, total = accumulate(weights)
        return bisect_right(edges, next(self.numbers) * total)

    def open_pass(self, index: int) -> Iterator[Pair]:
        """Begin another pass over a source."""
        source_epoch = self.epoch + self.passes[index]
        self.passes[index] += 1
        empty = True
        for pair in begin(self.node.sources[index], source_epoch).pairs:
            empty = False
            yield pair
        if empty:
            self.weights[index] = 0.0

    def position(self) -> State:
        refuse_state(self.node)
