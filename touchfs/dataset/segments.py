"""The segments of an indexed dataset by position, and those merged by a plan: the files of `segments/` and `merged/`.

How many a sample has is counted when these are made, from all catalogs, and kept: 4 bytes a sample. Of segments that
reads three columns of each catalog; of merged ones it is the merging itself, without the texts: some microseconds a
segment. A plan with a seed, or recordings that have to be decoded, take some ten times as long.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from touchfs.catalog.catalog import Kind
from touchfs.catalog.columns import as_array
from touchfs.catalog.table import DIRECTORY, Table
from touchfs.dataset import Dataset
from touchfs.dataset.open_shard import OpenShard
from touchfs.dataset.sample import MadeFile, MadeSample, Sample, SampleFile
from touchfs.dataset.samples import CATALOG_DAMAGED, CataloguedSample, CataloguedSamples, Samples, path_of
from touchfs.errors import FormatError
from touchfs.extent import Content, Memory
from touchfs.sample import Field
from touchfs.view.form import SAMPLE_SIZE, recording_of
from touchfs.view.merged import MergedFile, merged_files
from touchfs.view.plan import MergePlan, merge

# Merged samples, of which a shuffle wants one segment each, but reading in order all of one after the other.
_SAMPLES_KEPT = 256


class _Parts(Samples):
    """`_ends` has for each shard how many parts its samples have, from the first to each one."""

    def __init__(self, dataset: Dataset) -> None:
        self._ends = [self._ends_of(OpenShard(dataset, position)) for position in range(len(dataset.shards))]
        super().__init__(dataset, [int(ends[-1]) if len(ends) else 0 for ends in self._ends])

    def _ends_of(self, shard: OpenShard) -> NDArray[np.uint32]:
        try:
            return np.cumsum(self.tally(shard, shard.shard.samples)).astype(np.uint32)
        except (IndexError, ZeroDivisionError) as error:
            raise FormatError(CATALOG_DAMAGED, path=shard.shard.path) from error

    def tally(self, shard: OpenShard, samples: int) -> NDArray[np.int64]:
        """How many parts each sample of a shard has. Raises IndexError where its catalog is damaged."""
        raise NotImplementedError

    def find(self, position: int, number: int) -> tuple[int, int]:
        """The sample that a part of a shard is of, and which of its parts."""
        ends: memoryview[int] = self._ends[position].data
        ordinal = bisect_right(ends, number)
        return ordinal, number - (ends[ordinal - 1] if ordinal else 0)


class SegmentSamples(_Parts, CataloguedSamples):
    view = "segments"

    def tally(self, shard: OpenShard, samples: int) -> NDArray[np.int64]:
        """By the last segment of each, as not all have a `.wav`."""
        table, counts = shard.tables["segments"], np.zeros(samples, np.int64)
        files = np.flatnonzero(as_array(table.kind) != DIRECTORY)
        ordinals = as_array(table.ordinal)[files]
        if len(ordinals) and ordinals.max() >= samples:
            raise IndexError(f"a segment of sample {ordinals.max()} of {samples}")
        np.maximum.at(counts, ordinals, as_array(table.part)[files].astype(np.int64) + 1)
        return counts

    def show(self, shard: OpenShard, position: int, number: int) -> Sample:
        ordinal, part = self.find(position, number)
        table = shard.tables["segments"]
        return _Segment(self.view, shard, table, _rows(table, ordinal, part), ordinal, part)

    def first_rows(self, shard: OpenShard, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        return shard.tables["segments"].first_files_of_parts(numbers)


class _Segment(CataloguedSample):
    __slots__ = ()

    def extension(self, row: int) -> str:
        return _extension(self._table.name(row))


class MergedSamples(_Parts):
    def __init__(self, dataset: Dataset, plan: MergePlan) -> None:
        self.plan = plan
        self.view = f"merged/{plan}"
        self._samples: OrderedDict[tuple[int, int], list[MergedFile]] = OrderedDict()
        super().__init__(dataset)

    def tally(self, shard: OpenShard, samples: int) -> NDArray[np.int64]:
        counts = np.zeros(samples, np.int64)
        for ordinal, count in _count_runs(self.plan, shard):
            counts[ordinal] = count
        return counts

    def show(self, shard: OpenShard, position: int, number: int) -> Sample:
        ordinal, part = self.find(position, number)
        table = shard.tables["segments"]
        stem = b"%04d." % part
        shown = [file for file in self._merged(table, position, ordinal) if file.name.startswith(stem)]
        shown.sort(key=lambda file: file.data is not None)  # the .wav first, as of segments
        files = {_extension(file.name): self._file(shard, table, file) for file in shown}
        return MadeSample(self.view, shard.shard.name, ordinal, part, table.key(shown[0].row), files)

    def _merged(self, table: Table, position: int, ordinal: int) -> list[MergedFile]:
        asked = position, ordinal
        files = self._samples.get(asked)
        if files is None:
            files = self._samples[asked] = merged_files(self.plan, table, ordinal)
            if len(self._samples) > _SAMPLES_KEPT:
                with suppress(KeyError):  # another thread dropped it
                    self._samples.popitem(last=False)
        return files

    def _file(self, shard: OpenShard, table: Table, file: MergedFile) -> SampleFile:
        content: Callable[[], Content]
        if file.data is not None:
            content = partial(Memory, file.data)
        else:
            content = partial(shard.present, table.kind[file.row] - 1, file.offset, file.length, file.detail)
        path = partial(_path_beside, self.view, shard.shard.name, table, file.row, file.name.decode())
        return MadeFile(shard.kind_of(table, file.row).field, path, content)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_samples": OrderedDict()}


def _wavs(shard: OpenShard) -> NDArray[np.int64]:
    """The rows of the segments' .wav files, of which each has one: they are no directories and not computed."""
    is_wav = np.array([False, *(kind.form != "inline" for kind in shard.kinds)])
    return np.flatnonzero(is_wav[np.asarray(shard.tables["segments"].kind)])


def _count_runs(plan: MergePlan, shard: OpenShard) -> Iterator[tuple[int, int]]:
    """How many merged segments each sample has that has segments."""
    table = shard.tables["segments"]
    wavs = _wavs(shard)
    ordinals = as_array(table.ordinal)[wavs]
    # Where PCM is in its shard tells where it is in its recording, up to an offset common to all, which is enough.
    pcm = [_pcm(kind) for kind in shard.kinds]
    kinds = np.asarray(table.kind)[wavs] - 1
    if plan.seed is not None or not all(pcm[kind][0] for kind in np.unique(kinds).tolist()):
        for ordinal in np.unique(ordinals).tolist():
            files = merged_files(plan, table, ordinal)
            yield ordinal, sum(file.name.endswith(b".wav") for file in files)
        return
    in_order = np.lexsort((np.asarray(table.part)[wavs], ordinals))
    wavs, ordinals, kinds = wavs[in_order], ordinals[in_order], kinds[in_order]
    widths = np.array([width for width, _ in pcm])[kinds]
    offsets = (np.asarray(table.offset)[wavs] // widths).tolist()
    lengths = (np.asarray(table.length)[wavs] // widths).tolist()
    firsts = np.flatnonzero(np.diff(ordinals, prepend=-1)).tolist()
    for first, end in pairwise([*firsts, len(wavs)]):
        spans = list(zip(offsets[first:end], lengths[first:end], strict=True))
        yield int(ordinals[first]), len(merge(plan, "", spans, pcm[kinds[first]][1]))


def _pcm(kind: Kind) -> tuple[int, int]:
    """Bytes a sample of all channels, and the rate, of files of PCM; (0, 0) of others."""
    recording = recording_of(Field(kind.field, kind.source, 0, 0, kind.form, ""))
    return (SAMPLE_SIZE * recording.channels, recording.rate) if recording else (0, 0)


def _rows(table: Table, ordinal: int, part: int) -> Sequence[int]:
    """Of the files of a segment."""
    ordinals, parts = table.ordinal, table.part
    wanted = ordinal, part

    def place(row: int) -> tuple[int, int]:
        return ordinals[row], parts[row]

    first = bisect_left(table.order, wanted, key=place)
    last = first
    while last < len(table.order) and place(table.order[last]) == wanted:
        last += 1
    return list(table.order[first:last])


def _extension(name: bytes) -> str:
    """Behind the number of the segment."""
    return name.partition(b".")[2].decode("utf-8", "surrogateescape")


def _path_beside(view: str, shard: str, table: Table, row: int, name: str) -> str:
    directory, _, _ = path_of(view, shard, table, row).rpartition("/")
    return f"{directory}/{name}"
