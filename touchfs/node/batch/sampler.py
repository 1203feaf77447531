"""Batches of as many samples as fit, in the order in which they come.

With `shuffle`, the source goes through a `LazyShuffler` of `buffer_size` first. Over one indexed dataset it is better
to shuffle all of that (`LazyIndexedManifestIterator(…, shuffle=True)`): then the state is some integers, and one sample
at most waits between two batches, the one that did not fit into the first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from touchfs.node.batch.batch import Limit, SamplerIteration, SamplerNode, batch_of
from touchfs.node.core.base import Pair
from touchfs.node.core.saved import Saved
from touchfs.node.core.seed import Seed, check_seed
from touchfs.node.transform.shuffler import LazyShuffler
from touchfs.token import State


class DynamicSampler(SamplerNode):
    """`max_duration` bounds count times longest of a batch, `max_items` the count; `duration` is the name of a
    sample's attribute or a function of it. `drop_last` leaves out the last batch if it is not full."""

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
    node: DynamicSampler

    def __init__(self, node: DynamicSampler, epoch: int, saved: Saved) -> None:
        super().__init__(node, epoch, saved)
        self.waiting = self.restored(saved)

    def walk(self) -> Iterator[Pair]:
        while True:
            count = self.node.limit.take(self._durations())
            if count is None:
                count = 0 if self.node.drop_last else len(self.waiting)
            if not count:
                return
            batch = self.waiting[:count]
            del self.waiting[:count]
            yield batch_of(batch)

    def _durations(self) -> Iterator[float]:
        for sample in self.waiting:
            yield sample.duration
        while (pulled := self.pull()) is not None:
            self.waiting.append(pulled)
            yield pulled.duration

    def position(self) -> State:
        return self.waiting_position(self.waiting)
