"""A shuffle buffer, for sources whose order cannot be permuted.

The buffer is kept full, and each step takes one of its entries at random. It holds tokens, and an item is made when it
is taken, so resuming decodes nothing. The state consists of the buffer's tokens; of indexed data,
`LazyGlobalShuffle` shuffles all, with a state of one integer.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial
from typing import Any, cast

from touchfs.core.errors import UsageError
from touchfs.core.token import State, Token
from touchfs.node.core.foreign import maker
from touchfs.node.core.iteration import Make, Pair
from touchfs.node.core.iterator_node import is_partitioned
from touchfs.node.core.lhotse_names import also_named
from touchfs.node.core.saved import Saved
from touchfs.node.core.seed import SeedOrRng, resolve_seed
from touchfs.node.core.transform import BufferingNode, TransformIteration
from touchfs.node.order.draws import draws


class LazyShuffler(BufferingNode):
    """The items of `source`, shuffled through a buffer of `buffer_size` items. Tokens are those of the source.

    `seed` is an integer, or a generator from which one seed is drawn; `rng` is Lhotse's name for the latter. To be
    saved it needs a source that rebuilds items from tokens. Raises UsageError for a buffer without room for one item.
    """

    @also_named(iterator="source")
    def __init__(
        self, source: Any, buffer_size: int = 10_000, seed: SeedOrRng = 0, *, rng: random.Random | None = None
    ) -> None:
        if buffer_size < 1:
            raise UsageError(f"a shuffle buffer has 1 or more items, not {buffer_size}")
        super().__init__(source)
        self.buffer_size = buffer_size
        self.seed = resolve_seed(seed if rng is None else rng, is_partitioned(self.source), takes_rng=True)

    def iteration(self, epoch: int, saved: Saved) -> ShufflerIteration:
        return ShufflerIteration(self, epoch, saved)

    def config(self) -> State:
        return {"buffer_size": self.buffer_size, "seed": int(self.seed)}


class ShufflerIteration(TransformIteration):
    """`drained` means that the source has ended, and that its state is that of its next epoch."""

    node: LazyShuffler

    def __init__(self, node: LazyShuffler, epoch: int, saved: Saved) -> None:
        super().__init__(node, epoch, saved)
        self._make = maker(node.source)
        # Entries from a state have no function yet: it is created when the entry is drawn.
        self.buffer: list[tuple[Token | None, Make | None]] = [
            (token, None) for token in saved.tokens("buffer", node.buffer_size)
        ]
        self.drained = saved.flag("drained")
        self.drawn = saved.integer("drawn")

    def walk(self) -> Iterator[Pair]:
        buffer, size, source = self.buffer, self.node.buffer_size, self.source.pairs
        for number in draws(self.seed, self.epoch, self.drawn):
            while len(buffer) < size and not self.drained:
                pair = next(source, None)
                if pair is None:
                    self.drained = True
                else:
                    buffer.append(pair)
            if not buffer:
                return
            taken = int(number * len(buffer))
            buffer[taken], buffer[-1] = buffer[-1], buffer[taken]
            self.drawn += 1
            token, make = buffer.pop()
            yield token, make or partial(self._make, cast(Token, token))  # None only for an entry from a state

    def position(self) -> State:
        return {
            **super().position(),
            "buffer": [token for token, _ in self.buffer],
            "drained": self.drained,
            "drawn": self.drawn,
        }
