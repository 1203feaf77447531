"""A global shuffle: all items of an indexed source in one random order, another one in each epoch.

A leaf can visit its own samples in any order, so the shuffle of a leaf is a copy of the leaf with another order. Any
other source becomes the only one of a chain, which visits its ordinals. The shuffle only makes that node, its `source`:
iterations, states and tokens are those of the source, so it costs nothing in a step.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from touchfs.core.errors import UsageError
from touchfs.core.token import State, Token
from touchfs.node.core.description import recorded
from touchfs.node.core.iteration import Iteration
from touchfs.node.core.iterator_node import resolve_iterator_source
from touchfs.node.core.pair_node import PairNode
from touchfs.node.core.saved import FRESH, Saved
from touchfs.node.core.seed import DrawnSeed, SeedOrRng, resolve_seed
from touchfs.node.core.transform import TransformNode
from touchfs.node.leaf.indexed_leaf import IndexedLeaf
from touchfs.node.order.batches import Part, part_of
from touchfs.node.order.order import window_of
from touchfs.node.order.ordered_node import OrderedNode
from touchfs.node.order.windowed import Window
from touchfs.node.transform.chain import LazyIteratorChain


class LazyGlobalShuffle(TransformNode):
    """The items of an indexed `source` in globally shuffled order, that of `seed` + epoch.

    `source` is a node with random access and a length: a leaf such as `LazyIndexedManifestIterator`, or a mapper, a
    mixer, a chain or a global shuffle over such nodes. It must not be one rank's part. `seed` is an integer, or None,
    "randomized", "trng" or a generator, from which one seed is drawn; `rng` is Lhotse's name for a generator. Rank
    `rank` (from 0) of `world_size` visits its part, as `Partition(rank, world_size, partition, tail)`; ranks need the
    same integer as seed. With `partition="batches"` ranks share batches of `global_batch` items
    (`touchfs.node.order.batches`). A `window` of so many items, in `lanes`, keeps the order near that of the data
    (`touchfs.node.order.windowed`).

    Over a leaf, states and tokens are those of the leaf with `shuffle=True`. Over any other source they are those of
    `LazyIteratorChain(source, shuffle_iters=True)`, whose tokens are `(0, source_token)`.

    Raises UsageError for a source that cannot be shuffled globally (use a `LazyShuffler`), and for ranks whose seed
    would be drawn.
    """

    source: OrderedNode

    def __init__(
        self,
        source: Any,
        seed: SeedOrRng = 0,
        *,
        rng: random.Random | None = None,
        rank: int = 0,
        world_size: int = 1,
        partition: str = "stride",
        tail: str = "keep",
        global_batch: int | None = None,
        window: int | None = None,
        lanes: int = 1,
    ) -> None:
        part = part_of(rank, world_size, partition, tail, global_batch, lanes)
        drawn = resolve_seed(seed if rng is None else rng, world_size > 1, takes_rng=True)
        if isinstance(drawn, DrawnSeed) and world_size > 1:
            raise UsageError("rng is each rank's own, and ranks of one shuffle need one seed: give an integer")
        super().__init__(_in_order(resolve_iterator_source(source), drawn, part, window_of(drawn, window, lanes)))

    @property
    def recorded(self) -> PairNode:
        return self.source.recorded

    def iteration(self, epoch: int, saved: Saved) -> Iteration:
        return self.source.iteration(epoch, saved)

    def begin(self, epoch: int = 0, saved: Saved = FRESH) -> Iteration:
        return self.source.begin(epoch, saved)

    def extended(self, saved: Saved) -> State:
        return self.source.extended(saved)

    def token_at(self, ordinal: int, epoch: int) -> Token:
        """Return the token of an ordinal of the source in an epoch, for a global shuffle above."""
        return self.source.token_at(ordinal, epoch)

    def ordinal_of(self, token: Token) -> int:
        """Return the source's ordinal of a token."""
        return self.source.ordinal_of(token)

    def locate(self, token: Token, epoch: int) -> State:
        return self.source.locate(token, epoch)

    def total_progress(self, state: State) -> tuple[int, int | None]:
        return self.source.total_progress(state)

    def paths(self, tokens: Sequence[Token]) -> list[bytes]:
        return self.source.paths(tokens)

    def read(self, extension: str, tokens: Sequence[Any]) -> list[bytes]:
        return self.source.read(extension, tokens)

    def __len__(self) -> int:
        return len(self.source)


def _in_order(source: Any, seed: int, part: Part, window: Window | None) -> OrderedNode:
    # The shuffle of a shuffle is that of the node which it made.
    node = recorded(source)
    if isinstance(node, IndexedLeaf):
        return node.in_order(seed, part, window)
    chain = LazyIteratorChain(source, shuffle_iters=True, seed=seed)
    chain.order = replace(chain.order, partition=part, window=window)
    return chain
