"""Batches by the lengths of samples that the index knows, at any position of an order.

The unit of the order is the batch of one rank (`touchfs.node.order.units`). One pass over the lengths of an epoch tells
how many units are before each span of it, one integer a span. So each of them is found at once, by forming those of its
span, and ranks share units as they share samples: in global batches, of so many units. The state is one position.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, chain, pairwise
from typing import Any, Self, cast

import numpy as np
from numpy.typing import NDArray

from touchfs.core.errors import FormatError, UsageError
from touchfs.core.measure import SECONDS, TOKENS, check_limit, length_of
from touchfs.core.progress import reached
from touchfs.core.token import State, Token
from touchfs.dataset import counted
from touchfs.node.core.description import describe, drawn_seeds_of, take_described_seeds, without_data
from touchfs.node.core.foreign import maker
from touchfs.node.core.iteration import Pair
from touchfs.node.core.iterator_node import kind_of
from touchfs.node.core.saved import Saved
from touchfs.node.core.seed import DrawnSeed
from touchfs.node.core.transform import TransformNode
from touchfs.node.order.batches import GlobalBatches
from touchfs.node.order.epoch import AnyStage, Epoch, LeftByRanks, LongerEpoch, WholeEpoch, read_stages
from touchfs.node.order.growth import Grown
from touchfs.node.order.order import Order
from touchfs.node.order.ordered_node import (
    DAMAGED,
    OrderedNode,
    OrderIteration,
    known_fingerprints,
    merged_of_ranks,
)
from touchfs.node.order.partition import KEEP
from touchfs.node.order.remainder import Remainder, Stage
from touchfs.node.order.units import SPAN, Unit, UnitRule
from touchfs.node.transform.mapper import described_order, mapped_order

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
        self._grown: GrownSamples | None = None
        # The one that was asked for last, by the epoch and the data before each growth.
        self._over: dict[tuple[Any, ...], Self] = {}

    def obstacle(self) -> str | None:
        return None  # the state of the source is not used

    def order_of(self, epoch: int) -> Order:
        return replace(self.order, size=int(self._table(epoch)[-1]))

    def iteration(self, epoch: int, saved: Saved) -> UnitIteration:
        return UnitIteration(self.over(epoch, read_stages(saved)), epoch, saved)

    def over(self, epoch: int, stages: Sequence[AnyStage]) -> Self:
        """Return these batches of an epoch that went on over other shards as `stages` say, or else itself.

        Raises as `left_of`.
        """
        growths = tuple(stage for stage in stages if isinstance(stage, Grown))
        if not growths:
            return self
        key = (epoch, *((growth.fingerprints, growth.window, growth.samples) for growth in growths))
        if (found := self._over.get(key)) is None:
            found = self.for_iteration()
            found._grown = _grown_samples(self._samples, epoch, growths)
            found._tables, found._latest = {}, None
            self._over.clear()
            self._over[key] = found
        return found

    def left_of(self, epoch: int, stages: Sequence[AnyStage], data: Grown | None = None) -> Epoch:
        bounds = self.over(epoch, [*stages, *([] if data is None else [data])]).unit_bounds(epoch)
        left: Epoch = WholeEpoch(bounds[1], None)
        for stage in stages:
            if isinstance(stage, Stage):
                left = LeftByRanks(left, Remainder(left.size, stage))
                continue
            bounds = bounds[1:]
            first, end = bounds[:2]
            if (stage.left, stage.new, stage.lost) != (left.size, end - first, 0):
                raise FormatError(DAMAGED)
            left = LongerEpoch(left, first, end)
        return left

    def unit_bounds(self, epoch: int) -> list[int]:
        """Return how many units there are before the samples of each growth of an epoch, from 0 to all of them."""
        spans = [0, *accumulate(len(self._spans_in(*piece)) for piece in pairwise(self._pieces(epoch)))]
        return list(map(int, self._table(epoch)[spans]))

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

    @property
    def can_grow(self) -> bool:
        return bool(self._samples.datasets())

    def goes_on_with_other(self, name: str) -> bool:
        return name in ("length", "data") and self.can_grow and self._samples.goes_on_with_other("length")

    def extended(self, saved: Saved) -> State:
        """Return a state in which the batches that `saved` left come first, and then those of the new samples.

        Raises UsageError where shards are gone: which samples batches had follows from the lengths of all.
        """
        self._check(saved, ("data",))
        here, there = self.config(), saved.child("config")
        if there.fields() == here:
            return saved.fields()
        if without_data(there.get("data")) != without_data(here["data"]):
            self._check(saved)  # or refuse it
        if not self.can_grow:
            raise UsageError(
                f"{saved.where}: batches by length of a {kind_of(self._samples)} cannot go on over other shards: put "
                "the old ones back, or begin without the state"
            )
        merged, epoch = Saved(merged_of_ranks(self, saved), saved.where), saved.integer("epoch")
        data, stages = self._data_of(described_order(self.source, there.child("data"))), read_stages(merged)
        after = {**merged.fields(), "config": here, "position": 0, "partition": None}
        size = self.left_of(epoch, stages, data).size
        if merged.has("units") and (units := merged.integer("units")) != size:
            raise other_units(saved, units, size)
        if position := merged.integer("position", size):
            stages.append(Stage("stride", KEEP, (position,)))
        if stages:  # else nothing has come, and the epoch is one of all data
            *_, first, end = self.over(epoch, [*stages, data]).unit_bounds(epoch)
            stages.append(replace(data, length=first, left=size - position, new=end - first))
        left = self.left_of(epoch, stages).size
        return {**after, "stages": [stage.as_json() for stage in stages], "units": left}

    def _data_of(self, description: Saved) -> Grown:
        """Return the growth of the samples that are described. Raises UsageError if some of them are gone."""
        config = description.child("config")
        samples = config.integer("length")
        fingerprints = known_fingerprints(config.fields(), description.where)
        data = Grown(samples, config.fields().get("window"), fingerprints, 0, 0, 0)
        lost = self._samples.go_on(self._samples.left_of(0, [], data), data, None, 0).lost
        if lost:
            raise UsageError(
                f"{description.where} has {counted(lost, 'sample')} of shards that are gone, or given less often, and "
                "without their lengths nothing tells which samples its batches had: put these shards back, or begin "
                "without the state"
            )
        return replace(data, samples=samples)

    def described(self) -> list[Any]:
        return [self.source]

    def drawn_seeds(self) -> list[DrawnSeed]:
        return drawn_seeds_of([self.source])

    def take_seeds(self, config: Saved) -> None:
        take_described_seeds(self.source, config.child("data"))
        self._tables, self._latest, self._over = {}, None, {}

    def part(self, worker: int, workers: int) -> Self:
        part = super().part(worker, workers)
        part._latest, part._over = None, {}
        return part

    def __len__(self) -> int:
        """Return how many batches this rank takes of the epoch that begins next: epochs have different numbers."""
        return self.order_of(self.next_start()[0]).count()

    def _table(self, epoch: int) -> NDArray[np.int64]:
        """Return how many units are before each span of an epoch, and in all of it."""
        found = self._tables.get(epoch)
        if found is None:
            spans = sum(len(self._spans_in(*piece)) for piece in pairwise(self._pieces(epoch)))
            counts = [len(self._units(epoch, span)[0]) for span in _reached(spans)]
            found = np.cumsum([0, *counts])
            kept = dict([*self._tables.items()][1 - _TABLES_KEPT :])
            self._tables = {**kept, epoch: found}
        return found

    def _pieces(self, epoch: int) -> Sequence[int]:
        """Return the positions of samples from 0 to all of them between which units are formed apart."""
        grown = self._grown
        return [0, self._samples.order.size] if grown is None or grown.epoch != epoch else grown.bounds

    def _spans_in(self, first: int, end: int) -> range:
        return range(first, end, self.rule.span)

    def _span(self, epoch: int, number: int) -> tuple[int, int]:
        """Return where a span begins and ends among the samples of an epoch."""
        for piece in pairwise(self._pieces(epoch)):
            spans = self._spans_in(*piece)
            if number < len(spans):
                return spans[number], min(spans[number] + self.rule.span, piece[1])
            number -= len(spans)
        raise IndexError(f"there is no span {number} more")

    def _units(self, epoch: int, span: int) -> tuple[list[Unit], NDArray[np.int64]]:
        """Return the units of a span, and the ordinals of its samples in the source."""
        grown, (first, end) = self._grown, self._span(epoch, span)
        is_whole = grown is None or grown.epoch != epoch
        samples = self._samples.order.whole(epoch) if grown is None or is_whole else grown.samples
        ordinals = samples.ordinals(np.arange(first, end))
        lengths = self._samples.lengths_at(ordinals, epoch, self.rule.measure)
        if (wrong := self.rule.wrong(lengths)) is not None:
            token = self._samples.token_of(int(ordinals[wrong]), epoch)
            raise self.rule.refusal(f"sample {token}", int(lengths[wrong]))
        return self.rule.units(lengths), ordinals


@dataclass(frozen=True, slots=True)
class GrownSamples:
    """The samples of an `epoch` that went on over other shards: those of each growth are before one of `bounds`."""

    epoch: int
    samples: Epoch
    bounds: Sequence[int]


def _grown_samples(node: OrderedNode, epoch: int, growths: Sequence[Grown]) -> GrownSamples:
    if any(growth.samples is None for growth in growths):
        raise FormatError("the state has growths of samples, and not of batches: it is damaged")
    sizes = [*(cast(int, growth.samples) for growth in growths), node.order.size]
    of_samples = [
        replace(growth, length=size, left=size, new=now - size, lost=0, samples=None)
        for growth, (size, now) in zip(growths, pairwise(sizes), strict=True)
    ]
    return GrownSamples(epoch, node.left_of(epoch, of_samples), [0, *sizes])


def _reached(count: int) -> Iterator[int]:
    for number in range(count):
        yield number
        reached(number + 1, count)


class UnitIteration(OrderIteration):
    """The number of units differs from epoch to epoch, so it is in the state."""

    node: LazyLengthBatcher

    def __init__(self, node: LazyLengthBatcher, epoch: int, saved: Saved) -> None:
        super().__init__(node, epoch, saved)
        if not saved.fresh and (there := saved.integer("units")) != self.size:
            raise other_units(saved, there, self.size)

    def position(self) -> State:
        return {**super().position(), "units": self.size}


def other_units(saved: Saved, there: int, here: int) -> UsageError:
    """Return the error of a state of an epoch that had another number of batches."""
    return UsageError(f"{saved.where} is of an epoch of {there} batches, here it has {here}: restore that dataset")


def unit_rule(max_duration: float | None, max_tokens: int | None, pack: bool, span: int = SPAN) -> UnitRule:
    """Return the rule of these arguments. Raises UsageError for those that do not fit together."""
    if (max_duration is None) == (max_tokens is None):
        raise UsageError("batches by length have one limit: give max_duration or max_tokens")
    if not isinstance(pack, bool):
        raise UsageError(f"pack is true or false, not {pack!r:.80}")
    if max_duration is not None:
        return UnitRule(SECONDS, length_of(check_limit(max_duration, SECONDS, "max_duration"), SECONDS), pack, span)
    return UnitRule(TOKENS, length_of(check_limit(max_tokens, TOKENS, "max_tokens"), TOKENS), pack, span)
