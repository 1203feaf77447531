"""A repeater. Each repeat is an epoch of the source, so a shuffled source comes in a new order each time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, cast

from touchfs.core.errors import UsageError
from touchfs.core.token import State, Token
from touchfs.dataset.sample import Sample
from touchfs.node.audio.sound import with_id
from touchfs.node.core.foreign import begin, extended
from touchfs.node.core.iteration import Make, Pair
from touchfs.node.core.iterator_node import kind_of
from touchfs.node.core.lhotse_names import also_named
from touchfs.node.core.ranks import Ranks
from touchfs.node.core.saved import LARGEST, Saved
from touchfs.node.core.transform import TransformIteration, TransformNode

# A source may be empty in some epochs. After this many in a row an endless repeater treats it as empty, or it would
# loop forever. For a source that is empty in half of its epochs that is wrong once in 4 billion times.
MOST_EMPTY = 32


class LazyRepeater(TransformNode):
    """The items of `source`, `times` times, or without end if None. A token is `(repeat, source_token)`.

    An endless repeater ends if its source is empty. With `preserve_id=False` the suffix `_repeat0`, `_repeat1`, … is
    appended to the `id` of an object and to the key of a sample, as in Lhotse.
    """

    @also_named(iterator="source")
    def __init__(self, source: Any, times: int | None = None, preserve_id: bool = True) -> None:
        if times is not None and times < 1:
            raise UsageError(f"a source is repeated 1 or more times, not {times}")
        super().__init__(source)
        self.times = times
        self.preserve_id = preserve_id

    def iteration(self, epoch: int, saved: Saved) -> RepeaterIteration:
        return RepeaterIteration(self, epoch, saved)

    def make(self, token: Token) -> Any:
        if not isinstance(token, tuple) or len(token) != 2 or type(token[0]) is not int:
            raise TypeError(f"{kind_of(self)} expects tokens shaped like (repeat, source_token), not {token!r}")
        if token[0] < 0 or (self.times is not None and token[0] >= self.times):
            raise IndexError(f"repeat {token[0]} is out of range: {kind_of(self)} repeats {self.times} times")
        return self.present(partial(super().make, token[1]), token[0])()

    def present(self, make: Make, repeat: int) -> Make:
        """Return the function that makes the item of a `repeat`, given `make`, which makes the source's item."""
        return make if self.preserve_id else partial(_renamed, make, repeat)

    def config(self) -> State:
        return {"times": self.times, **({} if self.preserve_id else {"preserve_id": False})}

    @classmethod
    def merge(cls, ranks: Ranks) -> State:
        source, times = ranks.source(), ranks.states[0].child("config").get("times")
        # The epoch of the merged source determines the repeat.
        repeat = int(source["epoch"]) - ranks.epoch * (times or 1)
        return {"source": source, "repeat": repeat if times is None else min(repeat, times - 1)}

    def extended(self, saved: Saved) -> State:
        return {**saved.fields(), "source": extended(self.source, saved.child("source"))}

    def end_of_pass(self, saved: Saved) -> State:
        return {**super().end_of_pass(saved), "repeat": (self.times or 1) - 1}

    def relocate(self, state: State, token: Token) -> State:
        return {**state, "source": self.source.relocate(state["source"], token)}

    def epoch_of(self, state: State) -> int:
        return int(state["source"]["epoch"])

    def progress(self, state: State) -> tuple[int, int | None]:
        position, length = self.source.total_progress(state["source"])
        return position, length

    def total_progress(self, state: State) -> tuple[int, int | None]:
        position, length = self.progress(state)
        if length is None:
            return position, None
        # Earlier repeats visited everything, even if this one resumes the remainder of other ranks.
        whole = len(self.source)
        return state["repeat"] * whole + position, None if self.times is None else self.times * whole

    def paths(self, tokens: Sequence[Any]) -> list[bytes]:
        paths: list[bytes] = self.source.paths([token for _, token in tokens])
        return paths

    def __len__(self) -> int:
        length = len(self.source)
        if self.times is None and length:
            raise TypeError("an endless LazyRepeater has no length")
        return (self.times or 1) * length


class RepeaterIteration(TransformIteration):
    """`repeat` is the number of the current repeat within the epoch, from 0."""

    node: LazyRepeater

    def __init__(self, node: LazyRepeater, epoch: int, saved: Saved) -> None:
        # The source's epochs continue across the repeater's epochs.
        self.first = epoch * (node.times or 1)
        self.repeat = saved.integer("repeat", LARGEST if node.times is None else node.times - 1)
        super().__init__(node, epoch, saved, self.first + self.repeat)
        # The number of empty repeats in a row. The first repeat does not count: one resumed after its last item only
        # looks empty.
        self._empty = 0

    def walk(self) -> Iterator[Pair]:
        present = self.node.present
        while True:
            for token, make in self.source.pairs:
                self._empty = 0
                yield None if token is None else (self.repeat, token), present(make, self.repeat)
            if not self._goes_on():
                return

    def take(self, count: int) -> list[Token | None]:
        taken: list[Token | None] = []
        while True:
            tokens = self.source.take(count - len(taken))
            taken += [None if token is None else (self.repeat, token) for token in tokens]
            if tokens:
                self._empty = 0
            if len(taken) == count:
                return taken
            if not self._goes_on():
                self.ended = True
                return taken

    def _goes_on(self) -> bool:
        """Begin the next repeat. Returns False if there is none."""
        times = self.node.times
        if self.repeat + 1 == times or (times is None and self._empty == MOST_EMPTY):
            return False
        if self._empty and _has_nothing(self.node.source):
            return False
        self._empty += 1
        self.repeat += 1
        # Of the pass, not of the node: a mixture goes on as this one did, whatever was loaded since.
        self.source = begin(cast(Any, self.source.node), self.first + self.repeat)
        return True

    def position(self) -> State:
        return {**super().position(), "repeat": self.repeat}


def _renamed(make: Make, repeat: int) -> Any:
    item = make()
    if isinstance(item, Sample):
        return item.renamed(f"{item.key}_repeat{repeat}")
    return with_id(item, f"{item.id}_repeat{repeat}") if hasattr(item, "id") else item


def _has_nothing(source: Any) -> bool:
    try:
        return len(source) == 0
    except TypeError:  # it has no length
        return False
