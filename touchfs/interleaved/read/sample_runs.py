"""Find the rows of each sample in Parquet files, by reading only the column of ids.

Rows of a sample are normally adjacent: a run. But a sample may have several runs, in one file or in several that are
read together. It is complete at its last row, and that is its place in the order of samples.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray


class SplitSample(NamedTuple):
    """A sample of several runs: its first row, and the row after its last one."""

    first: int
    end: int


class SampleRuns:
    """The runs of rows with one id, of large strings. `starts` are their first rows, shape (runs + 1,); the last
    one is the number of rows. `split` has the samples of several runs, by the numbers of these runs.
    """

    def __init__(self, ids: Iterable[pa.Array]) -> None:
        starts: list[NDArray[np.int64]] = []
        names: list[pa.Array] = []
        last = None
        row = 0
        for text in ids:
            if len(text) == 0:
                continue
            is_new = np.ones(len(text), bool)
            is_new[1:] = pc.not_equal(text[1:], text[:-1]).to_numpy(zero_copy_only=False)
            is_new[0] = text[0].as_py() != last
            found = np.flatnonzero(is_new)
            starts.append(found + row)
            names.append(text.take(pa.array(found)))
            last, row = text[-1].as_py(), row + len(text)
        self.starts: NDArray[np.int64] = np.concatenate([*starts, [row]]).astype(np.int64)
        self.split = self._find_split(pa.chunked_array(names, pa.large_string()))

    def _find_split(self, names: pa.ChunkedArray) -> dict[int, SplitSample]:
        counts = pc.value_counts(names)
        several = counts.field("values").filter(pc.greater(counts.field("counts"), 1))
        numbers = np.flatnonzero(pc.is_in(names, value_set=several).to_numpy()).tolist() if len(several) else []
        runs: dict[str, list[int]] = {}
        for number in numbers:
            runs.setdefault(names[number].as_py(), []).append(number)
        return {
            number: SplitSample(int(self.starts[group[0]]), int(self.starts[group[-1] + 1]))
            for group in runs.values()
            for number in group
        }

    def end_of(self, run: int) -> int:
        """The row after the sample that a run belongs to."""
        return self.split[run].end if run in self.split else int(self.starts[run + 1])

    def first_of(self, run: int) -> int:
        """The first row of the sample that a run belongs to."""
        return self.split[run].first if run in self.split else int(self.starts[run])

    def first_needed(self, row: int) -> int:
        """The first row of all samples that are not complete before a row."""
        return min([row, *(sample.first for sample in self.split.values() if sample.first < row < sample.end)])
