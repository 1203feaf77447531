"""A mixture of several datasets, exactly by weight at every position, and computed at any of them.

The mixture is itself an order: its positions are shared among ranks and in global batches as those of a dataset are,
and its state is one position. The k-th sample of a source is the k-th of its own order, whose epochs follow each other.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from touchfs.core.errors import FormatError, UsageError
from touchfs.core.measure import UNKNOWN, check_measure, unknown_length
from touchfs.core.token import State, Token
from touchfs.node.core.description import describe, drawn_seeds_of, take_described_seeds, without_data
from touchfs.node.core.foreign import maker
from touchfs.node.core.iteration import Pair
from touchfs.node.core.saved import LARGEST, Saved
from touchfs.node.core.seed import DrawnSeed
from touchfs.node.core.sources import SourcesNode
from touchfs.node.order.batches import part_of
from touchfs.node.order.epoch import (
    BLOCK,
    FIRST_BLOCK,
    AnyStage,
    Epoch,
    LeftByRanks,
    WholeEpoch,
    epoch_length,
    read_stages,
)
from touchfs.node.order.length_schedule import LengthSchedule, read_taken
from touchfs.node.order.order import Order
from touchfs.node.order.ordered_node import OrderedNode, OrderIteration, merged_of_ranks
from touchfs.node.order.partition import KEEP
from touchfs.node.order.remainder import Remainder, Stage
from touchfs.node.order.schedule import Schedule, Weights
from touchfs.node.transform.courses import Course, Since, Start, next_start, read_since
from touchfs.node.transform.mapper import described_order, mapped_order

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
        # Where the sources went on over other shards, for later epochs, and their courses from there on.
        self._since: Since | None = None
        self._courses: list[Course] = []
        if by is not None and end != "repeat":
            raise UsageError("a mixture by length repeats its sources: leave out end")
        self._schedule.at(np.zeros(1, np.int64))  # raises for sources whose lengths nothing tells
        self.order = Order(size, None, part_of(rank, world_size, partition, tail, global_batch))

    def _schedule_by(self, measure: str | None) -> Schedule | LengthSchedule:
        return self.schedule if measure is None else LengthSchedule(self.schedule, self._lengths_of)

    def obstacle(self) -> str | None:
        return None  # the states of the sources are not used

    def iteration(self, epoch: int, saved: Saved) -> MixtureIteration:
        if not saved.fresh:
            self.recall(saved)  # later epochs go on from there, too
        begins, since = self._before(epoch), self._since
        if saved.fresh and since is not None and since.epoch == epoch:  # of what came before nothing is known
            saved = Saved({"position": 0, "partition": None, "stages": _stages(since.came - begins)})
        return MixtureIteration(self.for_iteration(), epoch, saved)

    def order_of(self, epoch: int) -> Order:
        since = self._since
        return self.order if since is None or since.epoch != epoch else replace(self.order, size=since.length)

    def mark(self, epoch: int, stages: Sequence[AnyStage], position: int) -> State:
        left = self.left_of(epoch, stages)
        if isinstance(self._schedule, LengthSchedule):  # it may be that others compute the positions
            self._schedule.at(np.array([self._in_schedule(epoch, left, position)]))
        return self.mark_of(epoch, left, position)

    def carried(self) -> State:
        """Return the fields for `recall` by which later epochs of a copy of this mixture go on as those of this one."""
        return {} if self._since is None else {"since": self._since.as_json()}

    def mark_of(self, epoch: int, left: Epoch, position: int) -> State:
        """Return where the sources went on over other shards, and what they had near a position of what is `left` of
        an epoch, as far as that is computed.
        """
        since = self._since_in(epoch)
        fields: State = {} if since is None else {"since": since.as_json()}
        if isinstance(self._schedule, LengthSchedule):
            fields["taken"] = self._schedule.remembered(self._in_schedule(epoch, left, position)).as_json()
        return fields

    def recall(self, saved: Saved) -> None:
        since, courses = read_since(saved, len(self.sources)), []
        if since is not None:
            if self.schedule.counts(since.came).tolist() != [start.number for start in since.starts]:
                raise FormatError(f"{saved.where}.since does not fit the weights: the state is damaged")
            courses = list(map(Course, self._orders, since.starts))
        self._since, self._courses = since, courses
        if isinstance(self._schedule, LengthSchedule) and saved.has("taken"):
            self._schedule.remember(read_taken(saved.child("taken"), len(self.sources)))

    def _in_schedule(self, epoch: int, left: Epoch, position: int) -> int:
        inside = left.ordinals(np.array([position]))[0] if position < left.size else self.order_of(epoch).size
        return self._before(epoch) + int(inside)

    def _since_in(self, epoch: int) -> Since | None:
        """Return where the sources went on over other shards, if that matters in an epoch."""
        since = self._since
        if since is None or epoch < since.epoch or (self.end == "stop" and epoch > since.epoch):
            return None
        return since

    def _before(self, epoch: int) -> int:
        """Return how many positions of the schedule are before an epoch. Raises UsageError for too many."""
        before = self._begin_of(epoch, self._since_in(epoch), self.order.size)
        if before + self.order_of(epoch).size > LARGEST:
            raise UsageError(f"a mixture of {self.order.size} samples has no epoch {epoch}: the state is damaged")
        return before

    def _begin_of(self, epoch: int, since: Since | None, length: int) -> int:
        """Return the position of the schedule where an epoch begins, if epochs have so many positions."""
        if self.end == "stop":
            return 0
        if since is None:
            return epoch * length
        later = epoch - since.epoch
        return since.begins + (since.length + (later - 1) * length if later else 0)

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
        sources, numbers = self._schedule.at(positions + self._before(epoch))
        for source in np.unique(sources).tolist():
            places = np.flatnonzero(sources == source)
            for its, ordinals, of_source in self._course(source, epoch).at(numbers[places]):
                yield source, places[its], ordinals, of_source

    def _course(self, source: int, epoch: int) -> Course:
        """Return the course of a source in an epoch of the mixture."""
        if self._since_in(epoch) is not None:
            return self._courses[source]
        return Course(self._orders[source], Start(0, 0 if self.end == "repeat" else epoch))

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

    @property
    def can_grow(self) -> bool:
        return self.by is None and all(node.datasets() for node in self._orders)

    def goes_on_with_other(self, name: str) -> bool:
        if name in ("length", "data"):
            return self.can_grow and all(node.goes_on_with_other("length") for node in self._orders)
        return name == "weights"

    def extended(self, saved: Saved) -> State:
        """Return `saved` as a state of these weights and shards, if all that has come did so by the same weights.

        Each source goes on as it would alone. Raises UsageError for other sources, and for weights that were others
        before.
        """
        here = self.config()
        self._check(saved, list(here))
        here, there = self.config(), saved.child("config").fields()  # with the seeds of the state
        if there == here:
            return saved.fields()
        is_grown = there["data"] != here["data"]
        may_differ = ["weights", "length"]
        if is_grown and without_data(there["data"]) == without_data(here["data"]):
            may_differ.append("data")
        self._check(saved, may_differ)
        merged, since = Saved(merged_of_ranks(self, saved), saved.where), read_since(saved, len(self.sources))
        begins = self._begin_of(merged.integer("epoch"), since, merged.child("config").integer("length"))
        inside, left = _came(merged)
        came = begins + inside
        stretches = [_until(came, config["weights"], saved.where) for config in (there, here)]
        if stretches[0] != stretches[1]:
            weights = self.schedule.weights
            now = max(start for start in weights if start <= came)
            later = {max(start, came): list(shares) for start, shares in weights.items() if start >= now}
            raise UsageError(
                f"{saved.where}: {came} samples of the mixture have come by other weights, and stay: give "
                f"weights={stretches[0] | later}"
            )
        after = {**merged.fields(), "config": here}
        if is_grown:
            if inside + left != epoch_length(merged):
                raise UsageError(
                    f"{saved.where}: the ranks are at different places of the mixture, and its sources have other "
                    "shards: take a state that ranks share, as one between global batches"
                )
            fields = {"position": 0, "partition": None, "stages": _stages(inside)}
            return {**after, **fields, **self._grown(merged, since, begins, came, left)}
        if since is not None and self.end == "stop":  # other weights end the epoch elsewhere
            after["since"] = replace(since, length=self._length_of(since.starts)).as_json()
        return after

    def _grown(self, merged: Saved, since: Since | None, begins: int, came: int, left: int) -> State:
        """Return where the sources go on over other shards than those of the state `merged`, in which `came` samples
        have come, and `left` are left of an epoch that `begins` there. Raises as `extended`.
        """
        if self.by is not None:
            raise UsageError(
                f"{merged.where}: the order of a mixture by {self.by} follows from the lengths of all that has come, "
                "and its sources have other shards: put the old ones back, or begin without the state"
            )
        if not came:
            return {}
        repeats, epoch = self.end == "repeat", merged.integer("epoch")
        begun = since.starts if since else [Start(0, 0 if repeats else epoch)] * len(self.sources)
        numbers, starts = self.schedule.counts(came).tolist(), []
        descriptions = map(described_order, self.sources, merged.child("config").children("data", len(self.sources)))
        for node, before, start, number in zip(self._orders, descriptions, begun, numbers, strict=True):
            goes_on, more = next_start(node, before, start, number, repeats)
            starts.append(goes_on)
            left += more
        length = came - begins + max(left, 0) if repeats else self._length_of(starts)
        return {"since": Since(epoch, begins, length, tuple(starts)).as_json()}

    def _length_of(self, starts: Sequence[Start]) -> int:
        """Return how many positions an epoch has that ends with a source, if they go on from here."""
        courses = map(Course, self._orders, starts)
        return self.schedule.length_within(
            [start.number + course.left for start, course in zip(starts, courses, strict=True)]
        )

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


def _came(saved: Saved) -> tuple[int, int]:
    """Return the position of an epoch from which on nothing has come, and how many samples are left, before it, too."""
    size = epoch_length(saved)
    left: Epoch = WholeEpoch(size, None)
    for stage in read_stages(saved):
        if not isinstance(stage, Stage):
            raise FormatError(f"{saved.where} has other data before: it is not a state of a mixture, or damaged")
        left = LeftByRanks(left, Remainder(left.size, stage))
    first, behind = saved.integer("position", left.size), size - left.size

    def is_behind_all(number: int) -> bool:
        return int(left.ordinals(np.array([number]))[0]) == number + behind

    came = behind + first + bisect_left(range(first, left.size), True, key=is_behind_all)
    return came, left.size - first


def _stages(came: int) -> list[State]:
    return [Stage("stride", KEEP, (came,)).as_json()] if came else []


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
