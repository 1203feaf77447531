"""Batches of as many samples as fit, in the order of the source.

With `shuffle`, the source first goes through a `LazyShuffler` of `buffer_size`. Of indexed data a global shuffle
is better (`LazyGlobalShuffle`): the state is then a few integers, and at most one
sample is buffered between two batches, the one that did not fit into the first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from touchfs.core.token import State
from touchfs.node.batch.batch import Limit, SamplerIteration, SamplerNode, batch_of
from touchfs.node.core.iteration import Pair
from touchfs.node.core.saved import Saved
from touchfs.node.core.seed import Seed, check_seed
from touchfs.node.transform.shuffler import LazyShuffler


class DynamicSampler(SamplerNode):
    """Batches (lists) of consecutive samples of `source`. The token of a batch is the tuple of its samples' tokens.

    `max_duration` bounds the count times the longest duration in a batch, in the unit of `duration`: the name of an
    attribute of a sample, or a function of a sample. `max_items` bounds the count. `drop_last` drops the last batch if
    it is not full. With `shuffle`, samples first go through a buffer of `buffer_size`, drawn with `seed`.

    Raises UsageError without a limit. Iterating raises UsageError for a sample without a valid duration.
    """

    def __init__(
        self,
        source: Any,
        max_duration: float | None = None,
        max_items: int | None = None,
        shuffle: bool = False,
        seed: Seed = 0,
        drop_last: bool = False,
        duration: str | Callable[[Any], float] = "duration",
        buffer_size: int = 10_000,
    ) -> None:
        check_seed(seed)
        limit = Limit(max_duration, max_items)
        ordered = LazyShuffler(source, buffer_size, seed) if shuffle else source
        super().__init__(ordered, limit, drop_last, duration, measured=max_duration is not None)

    def iteration(self, epoch: int, saved: Saved) -> DynamicIteration:
        return DynamicIteration(self, epoch, saved)


class DynamicIteration(SamplerIteration):
    """`buffer` holds the samples taken from the source and not yet in a batch."""

    node: DynamicSampler

    def __init__(self, node: DynamicSampler, epoch: int, saved: Saved) -> None:
        super().__init__(node, epoch, saved)
        self.buffer = self.restored(saved)

    def walk(self) -> Iterator[Pair]:
        while True:
            count = self.node.limit.take(self._durations())
            if count is None:
                count = 0 if self.node.drop_last else len(self.buffer)
            if not count:
                return
            batch = self.buffer[:count]
            del self.buffer[:count]
            yield batch_of(batch)

    def _durations(self) -> Iterator[float]:
        for sample in self.buffer:
            yield sample.duration
        while (pulled := self.pull()) is not None:
            self.buffer.append(pulled)
            yield pulled.duration

    def position(self) -> State:
        return self.buffer_position(self.buffer)
