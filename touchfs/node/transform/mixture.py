"""A mixture of several datasets, exactly by weight at every position, and computed at any of them.

The mixture is itself an order: its positions are shared among ranks and in global batches as those of a dataset are,
and its state is one position. The k-th sample of a source is the k-th of its own order, whose epochs follow each other.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from touchfs.core.errors import FormatError, UsageError
from touchfs.core.measure import UNKNOWN, check_measure, unknown_length
from touchfs.core.token import State, Token
from touchfs.node.core.description import describe, drawn_seeds_of, take_described_seeds
from touchfs.node.core.foreign import maker
from touchfs.node.core.iteration import Pair
from touchfs.node.core.saved import LARGEST, Saved
from touchfs.node.core.seed import DrawnSeed
from touchfs.node.core.sources import SourcesNode
from touchfs.node.order.batches import part_of
from touchfs.node.order.epoch import BLOCK, FIRST_BLOCK, AnyStage, Epoch, LeftByRanks, WholeEpoch, read_stages
from touchfs.node.order.length_schedule import LengthSchedule, read_taken
from touchfs.node.order.order import Order
from touchfs.node.order.ordered_node import OrderedNode, OrderIteration, merged_of_ranks
from touchfs.node.order.remainder import Remainder, Stage
from touchfs.node.order.schedule import Schedule, Weights
from touchfs.node.transform.mapper import mapped_order

ENDS = ("repeat", "stop")


class LazyMixture(SourcesNode, OrderedNode):
    """The items of `sources` by `weights`. A token is `(source_index, source_token)`.

    `weights` has one for each source, or maps positions, counted in samples of the mixture, to weights that hold from
    there on. At every position each source has come by its weight, to within one sample; of weights whose common
    denominator is above 65,536 that is their rounded value. `seed` decides which of equally due sources comes first.

    A source that ends goes on with its next epoch (`end="repeat"`), and an epoch of the mixture has as many samples as
    all sources together; the next one goes on where it ended, with the positions in `weights`, too. With `end="stop"`
    an epoch ends where a source has no more samples, and all of them begin the next one.

    With `by="seconds"` or `by="tokens"` weights are of length: at every position each source has had its share of that,
    to within one sample. Where that is depends on the lengths of all samples before, which the index knows. A state
    holds what each source has had; to begin anywhere else takes about 4 s for a million of them. Its sources repeat.

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
        by: str | None = None,
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
        self.by = by if by is None else check_measure(by, "by")
        self._schedule = self._schedule_by(self.by)
        if by is not None and end != "repeat":
            raise UsageError("a mixture by length repeats its sources: leave out end")
        self._schedule.at(np.zeros(1, np.int64))  # raises for sources whose lengths nothing tells
        self.order = Order(size, None, part_of(rank, world_size, partition, tail, global_batch))

    def _schedule_by(self, measure: str | None) -> Schedule | LengthSchedule:
        return self.schedule if measure is None else LengthSchedule(self.schedule, self._lengths_of)

    def obstacle(self) -> str | None:
        return None  # the states of the sources are not used

    def iteration(self, epoch: int, saved: Saved) -> MixtureIteration:
        self._before(epoch)
        return MixtureIteration(self, epoch, saved)

    def mark(self, epoch: int, stages: Sequence[AnyStage], position: int) -> State:
        if isinstance(self._schedule, LengthSchedule):  # it may be that others compute the positions
            self._schedule.at(np.array([self._in_schedule(epoch, left := self.left_of(epoch, stages), position)]))
            return self.mark_of(epoch, left, position)
        return {}

    def mark_of(self, epoch: int, left: Epoch, position: int) -> State:
        """Return what sources had near a position of what is `left` of an epoch, as far as that is computed."""
        if not isinstance(self._schedule, LengthSchedule):
            return {}
        return {"taken": self._schedule.remembered(self._in_schedule(epoch, left, position)).as_json()}

    def recall(self, saved: Saved) -> None:
        if isinstance(self._schedule, LengthSchedule) and saved.has("taken"):
            self._schedule.remember(read_taken(saved.child("taken"), len(self.sources)))

    def _in_schedule(self, epoch: int, left: Epoch, position: int) -> int:
        inside = left.ordinals(np.array([position]))[0] if position < left.size else self.order.size
        return self._before(epoch) + int(inside)

    def _before(self, epoch: int) -> int:
        """Return how many positions of the schedule are before an epoch. Raises UsageError for too many."""
        before = epoch * self.order.size if self.end == "repeat" else 0
        if before + self.order.size > LARGEST:
            raise UsageError(f"a mixture of {self.order.size} samples has no epoch {epoch}: the state is damaged")
        return before

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
        tokens: list[Token | None] = [None] * len(ordinals)
        for source, places, own, its in self._by_source(np.asarray(ordinals, np.int64), epoch):
            found = self._orders[source].tokens_of(own.tolist(), its)
            for place, token in zip(places.tolist(), found, strict=True):
                tokens[place] = (source, token)
        return tokens

    def lengths_at(self, ordinals: NDArray[np.int64], epoch: int, measure: str) -> NDArray[np.int64]:
        lengths = np.empty_like(ordinals)
        for source, places, own, its in self._by_source(ordinals, epoch):
            lengths[places] = self._orders[source].lengths_at(own, its, measure)
        return lengths

    def _lengths_of(self, source: int, number: int, count: int) -> NDArray[np.int64]:
        """Return the lengths of `count` samples of a source, from a number on in its epochs one after the other."""
        node, epochs = self._orders[source], np.arange(number, number + count) // self._sizes[source]
        lengths = []
        for epoch in np.unique(epochs).tolist():
            own = np.arange(number, number + count)[epochs == epoch] % self._sizes[source]
            permutation = node.order.permutation(epoch)
            ordinals = own if permutation is None else permutation(own)
            found = node.lengths_at(ordinals, epoch, cast(str, self.by))
            if (found == UNKNOWN).any():
                token = node.token_of(int(ordinals[found == UNKNOWN][0]), epoch)
                raise UsageError(
                    f"sample {token} of source {source} of the mixture {unknown_length(cast(str, self.by))}"
                )
            lengths.append(np.maximum(found, 1))
        return np.concatenate(lengths)

    def _by_source(
        self, positions: NDArray[np.int64], epoch: int
    ) -> Iterator[tuple[int, NDArray[np.int64], NDArray[np.int64], int]]:
        """Yield the samples of each source and epoch of it: which of `positions` they are at, and their ordinals."""
        repeats = self.end == "repeat"
        sources, numbers = self._schedule.at(positions + self._before(epoch))
        for source in np.unique(sources).tolist():
            places = np.flatnonzero(sources == source)
            epochs, own = np.divmod(numbers[places], self._sizes[source])
            for its in np.unique(epochs).tolist():
                at, of_source = places[epochs == its], its if repeats else epoch
                permutation = self._orders[source].order.permutation(of_source)
                inside = own[epochs == its]
                yield source, at, inside if permutation is None else permutation(inside), of_source

    def ordinal_of(self, token: Token) -> int:
        raise UsageError("a mixture has several sources, and a sample many positions: write a state instead of a token")

    def config(self) -> State:
        return {
            "length": self.order.size,
            "order": "mixture",
            "end": self.end,
            "weights": [[start, list(shares)] for start, shares in self.schedule.weights.items()],
            "ties": self.schedule.seed,
            **({} if self.by is None else {"by": self.by}),
            "data": list(map(describe, self.sources)),
        }

    def goes_on_with_other(self, name: str) -> bool:
        return name == "weights"

    def extended(self, saved: Saved) -> State:
        """Return `saved` as a state of these weights, if all that has come did so by the same ones.

        Raises UsageError for other sources, and for weights that were others before.
        """
        here = self.config()
        self._check(saved, list(here))
        here, there = self.config(), saved.child("config").fields()  # with the seeds of the state
        if there == here or any(there[name] != here[name] for name in here if name not in ("weights", "length")):
            return super().extended(saved)
        state = merged_of_ranks(self, saved)
        came = self._before(saved.integer("epoch")) + _came(Saved(state, saved.where))
        stretches = [_until(came, config["weights"], saved.where) for config in (there, here)]
        if stretches[0] != stretches[1]:
            weights = self.schedule.weights
            now = max(start for start in weights if start <= came)
            later = {max(start, came): list(shares) for start, shares in weights.items() if start >= now}
            raise UsageError(
                f"{saved.where}: {came} samples of the mixture have come by other weights, and stay: give "
                f"weights={stretches[0] | later}"
            )
        return {**state, "config": here}

    def described(self) -> list[Any]:
        return self.sources

    def drawn_seeds(self) -> list[DrawnSeed]:
        return drawn_seeds_of(self.sources)

    def take_seeds(self, config: Saved) -> None:
        for source, description in zip(self.sources, config.children("data"), strict=False):
            take_described_seeds(source, description)
        self._schedule = self._schedule_by(self.by)


class MixtureIteration(OrderIteration):
    """Computes the tokens of many positions at a time."""

    node: LazyMixture

    def __init__(self, node: LazyMixture, epoch: int, saved: Saved) -> None:
        node.recall(saved)
        super().__init__(node, epoch, saved)

    def position(self) -> State:
        own, size = self.own, self.size
        next_one = self._part.positions(np.array([own]), size)[0] if own < self._part.count(size) else size
        return {**super().position(), **self.node.mark_of(self.epoch, self._left, int(next_one))}

    def walk(self) -> Iterator[Pair]:
        count = FIRST_BLOCK
        while positions := list(islice(self._ordinals, count)):
            for token in self.node.tokens_of(positions, self.epoch):
                self.own += 1
                yield self.node.pair_of(token)
            count = min(count * 4, BLOCK)


def _came(saved: Saved) -> int:
    """Return the position of an epoch from which on nothing has come."""
    size = saved.child("config").integer("length")
    left: Epoch = WholeEpoch(size, None)
    for stage in read_stages(saved):
        if not isinstance(stage, Stage):
            raise FormatError(f"{saved.where} has other data before: it is not a state of a mixture, or damaged")
        left = LeftByRanks(left, Remainder(left.size, stage))
    first, behind = saved.integer("position", left.size), size - left.size

    def is_behind_all(number: int) -> bool:
        return int(left.ordinals(np.array([number]))[0]) == number + behind

    return behind + first + bisect_left(range(first, left.size), True, key=is_behind_all)


def _until(end: int, weights: Any, where: str) -> dict[int, list[int]]:
    """Return the weights in a `config` that hold before a position. Raises FormatError."""
    try:
        return {int(start): list(shares) for start, shares in weights if start < end}
    except (TypeError, ValueError) as error:
        raise FormatError(f"{where}.config.weights are no weights: the state is damaged") from error


def _in_order(source: Any) -> OrderedNode:
    """Return the node whose order that of a source is."""
    node = mapped_order(source, "a source of a mixture")
    if not node.order.size:
        raise UsageError("a source of a mixture is empty: leave it out")
    return node
