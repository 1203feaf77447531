"""A mixture of several datasets, exactly by weight at every position, and computed at any of them.

The mixture is itself an order: its positions are shared among ranks and in global batches as those of a dataset are,
and its state is one position. The k-th sample of a source is the k-th of its own order, whose epochs follow each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from touchfs.core.errors import UsageError
from touchfs.core.token import State, Token
from touchfs.node.core.description import describe, drawn_seeds_of, recorded, take_described_seeds
from touchfs.node.core.foreign import maker
from touchfs.node.core.iteration import Pair
from touchfs.node.core.iterator_node import kind_of
from touchfs.node.core.saved import Saved
from touchfs.node.core.seed import DrawnSeed
from touchfs.node.core.sources import SourcesNode
from touchfs.node.order.batches import part_of
from touchfs.node.order.epoch import BLOCK, FIRST_BLOCK
from touchfs.node.order.order import Order
from touchfs.node.order.ordered_node import OrderedNode, OrderIteration
from touchfs.node.order.schedule import Schedule, Weights
from touchfs.node.transform.mapper import LazyMapper

ENDS = ("repeat", "stop")


class LazyMixture(SourcesNode, OrderedNode):
    """The items of `sources` by `weights`. A token is `(source_index, source_token)`.

    `weights` has one for each source, or maps positions, counted in samples of the mixture, to weights that hold from
    there on. At every position each source has come by its weight, to within one sample; of weights whose common
    denominator is above 65,536 that is their rounded value. `seed` decides which of equally due sources comes first.

    A source that ends goes on with its next epoch (`end="repeat"`), and an epoch of the mixture has as many samples as
    all sources together; the next one goes on where it ended, with the positions in `weights`, too. With `end="stop"`
    an epoch ends where a source has no more samples, and all of them begin the next one.

    `rank`, `world_size`, `partition`, `tail` and `global_batch` are as for a `LazyGlobalShuffle`. Raises UsageError for
    a source that is empty, one rank's part, or without an order of its own: samples of datasets, shuffled or not, and
    maps of them have one.
    """

    def __init__(
        self,
        *sources: Any,
        weights: Weights | Mapping[int, Weights] | None = None,
        seed: int = 0,
        end: str = "repeat",
        rank: int = 0,
        world_size: int = 1,
        partition: str = "stride",
        tail: str = "keep",
        global_batch: int | None = None,
    ) -> None:
        super().__init__(*sources)
        if end not in ENDS:
            raise UsageError(f"a mixture ends by {' or '.join(ENDS)}, not {end!r:.80}")
        self._orders = list(map(_in_order, self.sources))
        self.end = end
        given = [1.0] * len(sources) if weights is None else weights
        self.schedule = Schedule(len(sources), given if isinstance(given, Mapping) else {0: given}, seed)
        self._sizes = [node.order.size for node in self._orders]
        size = sum(self._sizes) if end == "repeat" else self.schedule.length_within(self._sizes)
        self.order = Order(size, None, part_of(rank, world_size, partition, tail, global_batch))

    def obstacle(self) -> str | None:
        return None  # the states of the sources are not used

    def iteration(self, epoch: int, saved: Saved) -> MixtureIteration:
        return MixtureIteration(self, epoch, saved)

    def pair_at(self, ordinal: int, epoch: int) -> Pair:
        return self.pair_of(self.token_of(ordinal, epoch))

    def pair_of(self, token: Token | None) -> Pair:
        """Return a token of the mixture, and the function that makes its item."""
        index, inner = self.parts_of(cast(Token, token))
        return token, partial(maker(self.sources[index]), inner)

    def token_of(self, ordinal: int, epoch: int) -> Token:
        (token,) = self.tokens_of([ordinal], epoch)
        return cast(Token, token)

    def tokens_of(self, ordinals: list[int], epoch: int) -> list[Token | None]:
        repeats = self.end == "repeat"
        positions = np.asarray(ordinals, np.int64)
        sources, numbers = self.schedule.at(positions + epoch * self.order.size if repeats else positions)
        tokens: list[Token | None] = [None] * len(ordinals)
        for source in np.unique(sources).tolist():
            places = np.flatnonzero(sources == source)
            epochs, own = np.divmod(numbers[places], self._sizes[source])
            for its in np.unique(epochs).tolist():
                at = places[epochs == its]
                found = _tokens(self._orders[source], own[epochs == its], its if repeats else epoch)
                for place, token in zip(at.tolist(), found, strict=True):
                    tokens[place] = (source, token)
        return tokens

    def ordinal_of(self, token: Token) -> int:
        raise UsageError("a mixture has several sources, and a sample many positions: write a state instead of a token")

    def config(self) -> State:
        return {
            "length": self.order.size,
            "order": "mixture",
            "end": self.end,
            "weights": [[start, list(shares)] for start, shares in self.schedule.weights.items()],
            "ties": self.schedule.seed,
            "data": list(map(describe, self.sources)),
        }

    def described(self) -> list[Any]:
        return self.sources

    def drawn_seeds(self) -> list[DrawnSeed]:
        return drawn_seeds_of(self.sources)

    def take_seeds(self, config: Saved) -> None:
        for source, description in zip(self.sources, config.children("data"), strict=False):
            take_described_seeds(source, description)


class MixtureIteration(OrderIteration):
    """Computes the tokens of many positions at a time."""

    node: LazyMixture

    def walk(self) -> Iterator[Pair]:
        count = FIRST_BLOCK
        while positions := list(islice(self._ordinals, count)):
            for token in self.node.tokens_of(positions, self.epoch):
                self.own += 1
                yield self.node.pair_of(token)
            count = min(count * 4, BLOCK)


def _in_order(source: Any) -> OrderedNode:
    """Return the node whose order that of a source is."""
    node = recorded(source)
    while isinstance(node, LazyMapper):
        node = recorded(node.source)
    if not isinstance(node, OrderedNode) or not node.has_order:
        raise UsageError(
            f"a source of a mixture has a known order, and a {kind_of(node)} has none: mix datasets, shuffled and "
            "mapped as you like, and filter them with where"
        )
    if node.is_part:
        raise UsageError("a source of a mixture is not partitioned: give rank and world_size to the mixture")
    if not node.order.size:
        raise UsageError("a source of a mixture is empty: leave it out")
    return node


def _tokens(node: OrderedNode, positions: NDArray[np.int64], epoch: int) -> Sequence[Token | None]:
    permutation = node.order.permutation(epoch)
    ordinals = positions if permutation is None else permutation(positions)
    return node.tokens_of(ordinals.tolist(), epoch)
