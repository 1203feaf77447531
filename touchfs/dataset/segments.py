"""The segments of an indexed dataset by position, and segments merged by a plan: the files of `segments/` and
`merged/`.

The number of segments per sample is computed from all catalogs when an object is made, and kept: 4 bytes a sample. For
segments that reads three columns of each catalog; for merged ones it is the merging itself, without the texts: some
microseconds a segment. A plan with a seed, or recordings that must be decoded, take about ten times as long.
"""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from touchfs.catalog.columns import as_array, take
from touchfs.catalog.table import DIRECTORY, NO_SAMPLE, Table
from touchfs.core.errors import FormatError
from touchfs.core.extent import Content, Memory
from touchfs.dataset import Dataset
from touchfs.dataset.catalogued import CataloguedSample, path_of
from touchfs.dataset.open_shard import OpenShard, StoredBytes
from touchfs.dataset.sample import MadeSample, Sample
from touchfs.dataset.sample_file import MadeFile, SampleFile
from touchfs.dataset.samples import CATALOG_DAMAGED, CataloguedSamples, Samples
from touchfs.form.base import Form
from touchfs.form.plain import INLINE
from touchfs.form.recordings import Pcm
from touchfs.posix.bounded_cache import BoundedCache
from touchfs.view.merged import MergedFile, merged_files
from touchfs.view.plan import MergePlan, merge
from touchfs.view.segments import segment_ending

# Cached merged samples: reading in order needs all segments of one sample after the other, a shuffle only one of each.
_SAMPLES_KEPT = 256


class _Parts(Samples):
    """Parts of samples. `_ends` has, for each shard, the number of parts up to and including each sample."""

    def __init__(self, dataset: Dataset) -> None:
        self._ends = [self._ends_of(OpenShard(dataset, shard)) for shard in dataset.shards]
        super().__init__(dataset, [int(ends[-1]) if len(ends) else 0 for ends in self._ends])

    def _ends_of(self, shard: OpenShard) -> NDArray[np.uint32]:
        try:
            return np.cumsum(self.tally(shard, shard.shard.samples)).astype(np.uint32)
        except (IndexError, ZeroDivisionError) as error:
            raise FormatError(CATALOG_DAMAGED, path=shard.shard.path) from error

    @abstractmethod
    def tally(self, shard: OpenShard, samples: int) -> NDArray[np.int64]:
        """The number of parts of each sample of a shard. Raises IndexError if its catalog is damaged."""

    def find(self, position: int, number: int) -> tuple[int, int]:
        """The ordinal of the sample to which a part of a shard belongs, and the number of the part in it."""
        ends: memoryview[int] = self._ends[position].data
        ordinal = bisect_right(ends, number)
        return ordinal, number - (ends[ordinal - 1] if ordinal else 0)


class SegmentSamples(_Parts, CataloguedSamples):
    """The segments of all samples of a dataset, in order."""

    view = "segments"

    def tally(self, shard: OpenShard, samples: int) -> NDArray[np.int64]:
        """The number of segments of each sample, by its last one, because not all have a `.wav`."""
        table, counts = shard.tables["segments"], np.zeros(samples, np.int64)
        files = np.flatnonzero((as_array(table.kind) != DIRECTORY) & (as_array(table.ordinal) != NO_SAMPLE))
        ordinals = as_array(table.ordinal)[files]
        if len(ordinals) and ordinals.max() >= samples:
            raise IndexError(f"a segment of sample {ordinals.max()} of {samples}")
        np.maximum.at(counts, ordinals, as_array(table.part)[files].astype(np.int64) + 1)
        return counts

    def ordinals(self, shard: int, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """The ordinals of the samples of these segments."""
        return np.searchsorted(self._ends[shard], numbers, "right")

    def numbers(self, shard: int, table: Table, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """The numbers of segments in a shard."""
        firsts = np.concatenate([[0], self._ends[shard]]).astype(np.int64)
        return firsts[take(table.ordinal, rows)] + take(table.part, rows)

    def show(self, shard: OpenShard, position: int, number: int) -> Sample:
        """The `number`-th segment of a shard."""
        ordinal, part = self.find(position, number)
        table = shard.tables["segments"]
        return _Segment(self.view, shard, table, _rows(table, ordinal, part), ordinal, part)

    def first_rows(self, shard: OpenShard, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """The row of the first file of each segment; -1 for a segment without files."""
        return shard.tables["segments"].first_files_of_parts(numbers)


class _Segment(CataloguedSample):
    __slots__ = ()

    def extension(self, row: int) -> str:
        return segment_ending(self._table.name(row))


class MergedSamples(_Parts):
    """The segments of all samples of a dataset merged by a plan, in order."""

    def __init__(self, dataset: Dataset, plan: MergePlan) -> None:
        self.plan = plan
        self.view = f"merged/{plan}"
        self._samples: BoundedCache[tuple[int, int], list[MergedFile]] = BoundedCache(_SAMPLES_KEPT)
        super().__init__(dataset)

    def tally(self, shard: OpenShard, samples: int) -> NDArray[np.int64]:
        """The number of merged segments of each sample."""
        counts = np.zeros(samples, np.int64)
        for ordinal, count in _count_runs(self.plan, shard):
            counts[ordinal] = count
        return counts

    def show(self, shard: OpenShard, position: int, number: int) -> Sample:
        """The `number`-th merged segment of a shard."""
        ordinal, part = self.find(position, number)
        table = shard.tables["segments"]
        shown = [file for file in self._merged(table, position, ordinal) if file.number == part]
        shown.sort(key=lambda file: file.data is not None)  # the audio first, as for segments
        files = {file.ending: self._file(shard, table, file) for file in shown}
        return MadeSample(self.view, shard.shard.name, ordinal, part, table.key(shown[0].row), files)

    def _merged(self, table: Table, position: int, ordinal: int) -> list[MergedFile]:
        return self._samples.get((position, ordinal), lambda: merged_files(self.plan, table, ordinal))

    def _file(self, shard: OpenShard, table: Table, file: MergedFile) -> SampleFile:
        content: Callable[[], Content]
        if file.data is not None:
            content = partial(Memory, file.data)
        else:
            kind = table.kind[file.row] - 1
            stored = StoredBytes(kind, file.offset, file.length, file.detail, self.plan.rendering)
            content = partial(shard.present, stored)
        path = partial(_path_beside, self.view, shard, table, file.row, file.name.decode())
        return MadeFile(shard.kind_of(table, file.row).field, path, content)


def _wavs(shard: OpenShard) -> NDArray[np.int64]:
    """The rows of the segments' .wav files: those that neither the catalog itself nor a video has."""
    is_wav = np.array([False, *(form is not INLINE for form in shard.forms)])
    is_wav[list(shard.video_kinds)] = False
    return np.flatnonzero(is_wav[np.asarray(shard.tables["segments"].kind)])


def _count_runs(plan: MergePlan, shard: OpenShard) -> Iterator[tuple[int, int]]:
    """The ordinal of each sample with segments, and its number of merged segments."""
    table = shard.tables["segments"]
    wavs = _wavs(shard)
    ordinals = as_array(table.ordinal)[wavs]
    # Offsets of PCM in the shard are offsets in the recording plus a common constant, which does not affect merging.
    pcm = [_pcm(form) for form in shard.forms]
    kinds = np.asarray(table.kind)[wavs] - 1
    if plan.seed is not None or not all(pcm[kind][0] for kind in np.unique(kinds).tolist()):
        for ordinal in np.unique(ordinals).tolist():
            files = merged_files(plan, table, ordinal)
            yield ordinal, sum(file.data is None for file in files)
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


def _pcm(form: Form) -> tuple[int, int]:
    """Bytes per frame and rate in Hz of PCM; (0, 0) for other forms."""
    return (form.frame_size, form.rate) if isinstance(form, Pcm) else (0, 0)


def _rows(table: Table, ordinal: int, part: int) -> Sequence[int]:
    ordinals, parts = table.ordinal, table.part
    target = ordinal, part

    def place(row: int) -> tuple[int, int]:
        return ordinals[row], parts[row]

    first = bisect_left(table.order, target, key=place)
    last = first
    while last < len(table.order) and place(table.order[last]) == target:
        last += 1
    return list(table.order[first:last])


def _path_beside(view: str, shard: OpenShard, table: Table, row: int, name: str) -> str:
    directory, _, _ = path_of(view, shard, table, row).rpartition("/")
    return f"{directory}/{name}"
