"""A survey of a dataset before it is converted: how many samples its shards have, and which of them fill a new shard.

It reads no data. So it cannot know the samples that the target will refuse: its ranges are right unless one is skipped.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from touchfs.bulk.convert.input import InputShard, NewNames, count, samples
from touchfs.bulk.convert.resume import ResumePoint
from touchfs.containers.tar.layout.header import BLOCK
from touchfs.core.errors import FormatError, NotFoundError, TouchfsError
from touchfs.core.progress import reached
from touchfs.shard.options import Options
from touchfs.view.file import ViewFile


class ShardSurvey(NamedTuple):
    """The number of samples of a shard. If they were visited: all extensions, and for each sample the size of a tar
    with all samples up to it.
    """

    samples: int
    extensions: frozenset[str] = frozenset()
    sizes: NDArray[np.int64] | None = None


def survey_shard(
    options: Options, leave_out: Collection[str], visit: bool, new_names: NewNames, read: InputShard
) -> ShardSurvey:
    """Survey a shard, and with `visit` each of its samples. Its problems are reported when it is converted."""
    try:
        total = count(read, options)
    except (FormatError, NotFoundError):
        return ShardSurvey(0)
    if not visit:
        return ShardSurvey(total)
    extensions: set[str] = set()
    sizes = []
    for found in samples(read, options, leave_out, 0, new_names):
        if not isinstance(found, TouchfsError):
            sample, files = found
            sizes.append(_tar_size(files.of(sample)))
            extensions.update(file.label for file in files.of(sample))
            reached(len(sizes), total)
    return ShardSurvey(len(sizes), frozenset(extensions), np.cumsum(sizes, dtype=np.int64))


def _tar_size(files: Sequence[ViewFile]) -> int:
    """The size of a sample in a tar, if no name needs a longer header."""
    return sum(BLOCK + -(-file.size // BLOCK) * BLOCK for file in files)


@dataclass(frozen=True, slots=True)
class DatasetSurvey:
    """The surveys of all shards. `starts` are the bytes of files before each shard, and their total."""

    shards: Sequence[ShardSurvey]
    starts: Sequence[int]

    @property
    def extensions(self) -> frozenset[str]:
        return frozenset().union(*(shard.extensions for shard in self.shards))

    def ranges(
        self, begin: ResumePoint, samples_per_shard: int | None, bytes_per_shard: int | None
    ) -> Iterator[tuple[ResumePoint, ResumePoint]]:
        """Begin and end of each new shard from `begin` on, if no sample is skipped. The last one may be empty."""
        while begin.shard < len(self.shards):
            end = self._end(begin, samples_per_shard or sys.maxsize, bytes_per_shard)
            yield begin, end
            begin = end

    def _end(self, begin: ResumePoint, samples_left: int, bytes_left: int | None) -> ResumePoint:
        first, total = begin.ordinal, begin.samples
        for number in range(begin.shard, len(self.shards)):
            shard = self.shards[number]
            full = first + samples_left  # the ordinal behind the sample that fills the new shard
            if bytes_left is not None and shard.sizes is not None and shard.samples:
                before = int(shard.sizes[first - 1]) if first else 0
                full = min(full, int(np.searchsorted(shard.sizes, before + bytes_left)) + 1)
                bytes_left -= int(shard.sizes[-1]) - before
            if full <= shard.samples:
                return ResumePoint(number, full, total + full - first)
            samples_left -= shard.samples - first
            total += shard.samples - first
            first = 0
        return ResumePoint(len(self.shards), 0, total)

    def bytes_before(self, position: ResumePoint) -> int:
        """The bytes of the dataset before a position, for progress."""
        start = self.starts[position.shard]
        if not position.ordinal:
            return start
        size = self.starts[position.shard + 1] - start
        return start + size * position.ordinal // max(self.shards[position.shard].samples, position.ordinal)
