"""Batches by the lengths of samples that the index knows, at any position of an order.

The unit of the order is the batch of one rank (`touchfs.node.order.units`). One pass over the lengths of an epoch tells
how many units are before each span of it, one integer a span. So each of them is found at once, by forming those of its
span, and ranks share units as they share samples: in global batches, of so many units. The state is one position.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any, Self, cast

import numpy as np
from numpy.typing import NDArray

from touchfs.core.errors import UsageError
from touchfs.core.measure import SECONDS, TOKENS, check_limit, length_of
from touchfs.core.progress import reached
from touchfs.core.token import State, Token
from touchfs.node.core.description import describe, drawn_seeds_of, take_described_seeds
from touchfs.node.core.foreign import maker
from touchfs.node.core.iteration import Pair
from touchfs.node.core.iterator_node import kind_of
from touchfs.node.core.saved import Saved
from touchfs.node.core.seed import DrawnSeed
from touchfs.node.core.transform import TransformNode
from touchfs.node.order.batches import GlobalBatches
from touchfs.node.order.order import Order
from touchfs.node.order.ordered_node import OrderedNode, OrderIteration
from touchfs.node.order.partition import KEEP
from touchfs.node.order.units import SPAN, Unit, UnitRule
from touchfs.node.transform.mapper import mapped_order

# Epochs whose table is kept: the one that ends, and the one that begins.
_TABLES_KEPT = 2


class LazyLengthBatcher(TransformNode, OrderedNode):
    """Lists of samples of `source`, together of at most `max_duration` seconds or `max_tokens`: give one of them.

    By default a batch has samples of like length, and the limit is that of count times longest, as for a padded batch.
    With `pack` it is that of the sum. A sample that is longer than the limit, or whose length the index does not know,
    is an error when an epoch begins. Units are formed inside of `span` samples of the order. The token of a batch is
    the tuple of its samples' tokens.

    Rank `rank` of `world_size` takes its part of each `global_batch` of so many batches, by default as many as there
    are ranks; `tail` is as for a `LazyGlobalShuffle`. `source` is a shuffle, a dataset or a mixture, or a map of them.
    Raises UsageError for any other one, and for one rank's part.
    """

    def __init__(
        self,
        source: Any,
        max_duration: float | None = None,
        max_tokens: int | None = None,
        pack: bool = False,
        *,
        span: int = SPAN,
        rank: int = 0,
        world_size: int = 1,
        tail: str = KEEP,
        global_batch: int | None = None,
    ) -> None:
        super().__init__(source)
        self.rule = unit_rule(max_duration, max_tokens, pack, span)
        self._samples = mapped_order(self.source, "the source of batches by length")
        window = self._samples.order.window
        if window is not None and window.lanes > 1:
            raise UsageError("batches by length are of all lanes: leave out lanes")
        self.global_batch = global_batch
        part = GlobalBatches(world_size if global_batch is None else global_batch, rank, world_size, tail)
        self.order = Order(0, None, part)
        self._tables: dict[int, NDArray[np.int64]] = {}
        self._latest: tuple[int, int, list[Unit], NDArray[np.int64]] | None = None

    def obstacle(self) -> str | None:
        return None  # the state of the source is not used

    def order_of(self, epoch: int) -> Order:
        return replace(self.order, size=int(self._table(epoch)[-1]))

    def iteration(self, epoch: int, saved: Saved) -> UnitIteration:
        return UnitIteration(self, epoch, saved)

    def pair_at(self, ordinal: int, epoch: int) -> Pair:
        token = self.token_of(ordinal, epoch)
        return token, partial(self.make, token)

    def token_of(self, ordinal: int, epoch: int) -> Token:
        table = self._table(epoch)
        span = int(np.searchsorted(table, ordinal, "right")) - 1
        latest = self._latest
        if latest is None or latest[:2] != (epoch, span):
            self._latest = latest = (epoch, span, *self._units(epoch, span))
        *_, units, ordinals = latest
        its = ordinals[units[ordinal - int(table[span])]].tolist()
        return cast(Token, tuple(self._samples.tokens_of(its, epoch)))

    def ordinal_of(self, token: Token) -> int:
        raise UsageError("no sample tells the position of its batch by length: write a state instead of a token")

    def locate(self, token: Token, epoch: int) -> State:
        return {"position": self.ordinal_of(token)}

    def make(self, token: Token) -> list[Any]:
        if not isinstance(token, tuple) or not token:
            raise TypeError(f"{kind_of(self)} expects tokens shaped like (source_token, …), not {token!r}")
        return list(map(maker(self.source), token))

    def paths(self, tokens: Sequence[Any]) -> list[bytes]:
        """Return the path of the first file of each sample of the batches of `tokens`."""
        paths: list[bytes] = self.source.paths([*chain.from_iterable(tokens)])
        return paths

    def config(self) -> State:
        return {**self.rule.config(), "data": describe(self.source)}

    def described(self) -> list[Any]:
        return [self.source]

    def drawn_seeds(self) -> list[DrawnSeed]:
        return drawn_seeds_of([self.source])

    def take_seeds(self, config: Saved) -> None:
        take_described_seeds(self.source, config.child("data"))
        self._tables, self._latest = {}, None

    def part(self, worker: int, workers: int) -> Self:
        part = super().part(worker, workers)
        part._latest = None
        return part

    def __len__(self) -> int:
        """Return how many batches this rank takes of the epoch that begins next: epochs have different numbers."""
        return self.order_of(self.next_start()[0]).count()

    def _table(self, epoch: int) -> NDArray[np.int64]:
        """Return how many units are before each span of an epoch, and in all of it."""
        found = self._tables.get(epoch)
        if found is None:
            counts = [len(self._units(epoch, span)[0]) for span in self._spans()]
            found = np.cumsum([0, *counts])
            kept = dict([*self._tables.items()][1 - _TABLES_KEPT :])
            self._tables = {**kept, epoch: found}
        return found

    def _spans(self) -> Iterator[int]:
        count = -(-self._samples.order.size // self.rule.span)
        for span in range(count):
            yield span
            reached(span + 1, count)

    def _units(self, epoch: int, span: int) -> tuple[list[Unit], NDArray[np.int64]]:
        """Return the units of a span, and the ordinals of its samples in the source."""
        order = self._samples.order
        permutation = order.permutation(epoch)
        ordinals = np.arange(span * self.rule.span, min((span + 1) * self.rule.span, order.size))
        if permutation is not None:
            ordinals = permutation(ordinals)
        lengths = self._samples.lengths_at(ordinals, epoch, self.rule.measure)
        if (wrong := self.rule.wrong(lengths)) is not None:
            token = self._samples.token_of(int(ordinals[wrong]), epoch)
            raise self.rule.refusal(f"sample {token}", int(lengths[wrong]))
        return self.rule.units(lengths), ordinals


class UnitIteration(OrderIteration):
    """The number of units differs from epoch to epoch, so it is in the state."""

    node: LazyLengthBatcher

    def __init__(self, node: LazyLengthBatcher, epoch: int, saved: Saved) -> None:
        super().__init__(node, epoch, saved)
        if not saved.fresh and (there := saved.integer("units")) != self.size:
            raise UsageError(
                f"{saved.where} is of an epoch of {there} batches, here it has {self.size}: restore that dataset"
            )

    def position(self) -> State:
        return {**super().position(), "units": self.size}


def unit_rule(max_duration: float | None, max_tokens: int | None, pack: bool, span: int = SPAN) -> UnitRule:
    """Return the rule of these arguments. Raises UsageError for those that do not fit together."""
    if (max_duration is None) == (max_tokens is None):
        raise UsageError("batches by length have one limit: give max_duration or max_tokens")
    if not isinstance(pack, bool):
        raise UsageError(f"pack is true or false, not {pack!r:.80}")
    if max_duration is not None:
        return UnitRule(SECONDS, length_of(check_limit(max_duration, SECONDS, "max_duration"), SECONDS), pack, span)
    return UnitRule(TOKENS, length_of(check_limit(max_tokens, TOKENS, "max_tokens"), TOKENS), pack, span)
