"""Batches of samples of similar duration, which need little padding.

The buffer holds `buffer_size` samples, each in the bucket of its duration. For each batch a bucket is drawn; if it has
no full batch, the nearest bucket that has one is used. If none has, more samples are read until one does, so a buffer
that is too small neither loses samples nor cuts batches short. At the end, the rest makes batches that are not full,
unless `drop_last`.

The k-th draw is a function of (seed, epoch, k), one for each batch: ranks that step together and have the same
`boundaries` draw the same bucket, and so take equally long. With `shuffle`, samples leave a bucket at random; without,
in the order in which they entered it.

Boundaries are durations, each the smallest of a bucket. If none are given, they are computed at the start of an epoch
from the samples then in the buffer, such that `num_buckets` buckets have equal total durations. The state has the
boundaries, and the token and duration of each buffered sample: some 20 bytes each, 200 kB for 10,000.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from touchfs.core.errors import FormatError, UsageError
from touchfs.core.token import State
from touchfs.node.batch.batch import BufferedSample, Limit, SamplerIteration, SamplerNode, batch_of, is_duration
from touchfs.node.core.iteration import Pair
from touchfs.node.core.iterator_node import is_partitioned
from touchfs.node.core.saved import Saved
from touchfs.node.core.seed import Seed, resolve_seed
from touchfs.node.order.draws import draws


class BucketingSampler(SamplerNode):
    """Batches (lists) of samples from one bucket of durations. Tokens, `source`, `max_duration`, `max_items` and
    `duration` are as for `DynamicSampler`.

    `boundaries` are ascending durations between buckets; without them, `num_buckets` buckets are computed from the
    first `buffer_size` samples. `seed` seeds the draws of buckets and, with `shuffle`, of samples from a bucket.
    `drop_last` drops all samples that are left when no bucket has a full batch. Raises UsageError for arguments out of
    range.
    """

    def __init__(
        self,
        source: Any,
        max_duration: float | None = None,
        max_items: int | None = None,
        num_buckets: int = 10,
        buffer_size: int = 10_000,
        shuffle: bool = False,
        seed: Seed = 0,
        drop_last: bool = False,
        duration: str | Callable[[Any], float] = "duration",
        boundaries: Sequence[float] | None = None,
    ) -> None:
        if num_buckets < 1 or buffer_size < 1:
            raise UsageError(f"1 or more buckets of 1 or more samples, not {num_buckets} of {buffer_size}")
        super().__init__(source, Limit(max_duration, max_items), drop_last, duration)
        self.num_buckets = num_buckets
        self.buffer_size = buffer_size
        self.shuffle = shuffle
        self.seed = resolve_seed(seed, is_partitioned(self.source))
        self.boundaries = None if boundaries is None else [float(boundary) for boundary in boundaries]
        if not _are_boundaries(self.boundaries):
            raise UsageError(f"boundaries are durations in ascending order, not {boundaries!r:.200}")

    def iteration(self, epoch: int, saved: Saved) -> BucketingIteration:
        return BucketingIteration(self, epoch, saved)

    def config(self) -> State:
        return {
            **super().config(),
            "num_buckets": self.num_buckets,
            "buffer_size": self.buffer_size,
            "shuffle": self.shuffle,
            "seed": int(self.seed),
            "boundaries": self.boundaries,
        }


class BucketingIteration(SamplerIteration):
    """`drawn` and `picked` count the random numbers used for buckets and for samples."""

    node: BucketingSampler

    def __init__(self, node: BucketingSampler, epoch: int, saved: Saved) -> None:
        super().__init__(node, epoch, saved)
        self.drawn = saved.integer("drawn")
        self.picked = saved.integer("picked")
        # Until boundaries are set, there is a single bucket.
        self.boundaries: list[float] | None = node.boundaries if saved.fresh else saved.get("boundaries")
        if not _are_boundaries(self.boundaries):
            raise FormatError(f"{saved.where}.boundaries are not durations in ascending order: the state is damaged")
        self._sort(self.restored(saved))

    def walk(self) -> Iterator[Pair]:
        # The complement of the seed, or both kinds of draws would use the same numbers.
        picks = draws(self.seed, self.epoch, self.picked)
        for number in draws(~self.seed, self.epoch, self.drawn):
            self._fill()
            bucket = self._choose(number)
            if bucket is None:
                return
            count = self.node.limit.take(self._arranged(bucket, picks)) or len(bucket)
            batch = bucket[:count]
            del bucket[:count]
            self.drawn += 1
            yield batch_of(batch)

    def position(self) -> State:
        return {
            **self.buffer_position(sample for bucket in self.buckets for sample in bucket),
            "boundaries": self.boundaries,
            "drawn": self.drawn,
            "picked": self.picked,
        }

    def _fill(self) -> None:
        while sum(map(len, self.buckets)) < self.node.buffer_size and self._read():
            pass
        if self.boundaries is None:
            (samples,) = self.buckets
            self.boundaries = _even([sample.duration for sample in samples], self.node.num_buckets)
            self._sort(samples)
        while not any(map(self._has_a_batch, self.buckets)) and self._read():
            pass

    def _read(self) -> bool:
        sample = self.pull()
        if sample is not None:
            self._bucket_of(sample).append(sample)
        return sample is not None

    def _bucket_of(self, sample: BufferedSample) -> list[BufferedSample]:
        return self.buckets[bisect_right(self.boundaries or [], sample.duration)]

    def _sort(self, samples: list[BufferedSample]) -> None:
        self.buckets: list[list[BufferedSample]] = [[] for _ in range(len(self.boundaries or []) + 1)]
        for sample in samples:
            self._bucket_of(sample).append(sample)

    def _has_a_batch(self, bucket: list[BufferedSample]) -> bool:
        """Return True if a bucket has a full batch, which does not depend on the order: adding only fills a batch."""
        return self.node.limit.take(sample.duration for sample in bucket) is not None

    def _choose(self, number: float) -> list[BufferedSample] | None:
        drawn = int(number * len(self.buckets))
        nearest = sorted(range(len(self.buckets)), key=lambda index: abs(index - drawn))
        for index in nearest:
            if self._has_a_batch(self.buckets[index]):
                return self.buckets[index]
        left = [self.buckets[index] for index in nearest if self.buckets[index]]
        return left[0] if left and not self.node.drop_last else None

    def _arranged(self, bucket: list[BufferedSample], picks: Iterator[float]) -> Iterator[float]:
        """Yield the durations of a bucket in the order in which its samples leave it, and reorder the bucket so."""
        for first in range(len(bucket)):
            if self.node.shuffle:
                other = first + int(next(picks) * (len(bucket) - first))
                bucket[first], bucket[other] = bucket[other], bucket[first]
                self.picked += 1
            yield bucket[first].duration


def _even(durations: list[float], count: int) -> list[float]:
    """Return boundaries of `count` buckets of equal total duration, or fewer buckets if many durations are equal."""
    if not durations:
        return []
    ascending = np.sort(np.array(durations, np.float64))
    total = np.cumsum(ascending)
    at = np.searchsorted(total, total[-1] * np.arange(1, count) / count)
    return [float(boundary) for boundary in np.unique(ascending[at])]


def _are_boundaries(value: Any) -> bool:
    if value is None:
        return True
    return isinstance(value, list) and all(map(is_duration, value)) and value == sorted(value)
