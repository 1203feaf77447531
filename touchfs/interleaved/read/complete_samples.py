"""Rows of Parquet files, gathered until samples are complete."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from touchfs.core.errors import FormatError
from touchfs.interleaved.read.cursor import SamplePlace
from touchfs.interleaved.read.divided import SamplePiece
from touchfs.interleaved.read.sample_runs import SampleRuns


class SampleGatherer:
    """Gathers rows, which come in order, and yields the samples that are not complete before row `begin`.

    `starts` are the first rows of the files and the number of all rows, shape (files + 1,). Rows that wait for others
    of their sample may have `limit` bytes.
    """

    def __init__(self, runs: SampleRuns, starts: NDArray[np.int64], begin: int, limit: int) -> None:
        self._runs = runs
        self._files: list[int] = starts.tolist()
        self._begin = begin
        self._limit = limit
        self._rest: list[pa.Table] = []  # rows of a run whose end has not come
        self._waiting: dict[int, list[pa.Table]] = {}  # by the first row of a sample, its runs so far
        self._size = 0  # bytes that wait

    def add(self, first: int, table: pa.Table) -> Iterator[SamplePiece]:
        """Take rows, the first of which is row `first`, and yield the samples that they complete.

        Raises FormatError if too many bytes wait.
        """
        first -= sum(rest.num_rows for rest in self._rest)
        rows = pa.concat_tables([*self._rest, table]) if self._rest else table
        begin, end = np.searchsorted(self._runs.starts, [first, first + rows.num_rows], "right") - 1
        for group in self._groups(int(begin), int(end)):
            start = int(self._runs.starts[group.start])
            piece = rows.slice(start - first, int(self._runs.starts[group.stop]) - start)
            if group.start in self._runs.split:
                yield from self._add_run(group.start, piece)
            else:
                yield self._adjacent(group, piece)
        left = rows.slice(int(self._runs.starts[end]) - first)
        self._rest = [left] if left.num_rows else []

    def _groups(self, begin: int, end: int) -> Iterator[range]:
        """The complete runs from one number to another, less those that are done: adjacent ones together, unless they
        belong to a sample of several runs.
        """
        start = None
        for run in range(begin, end):
            if run not in self._runs.split and self._runs.end_of(run) > self._begin:
                start = run if start is None else start
                continue
            if start is not None:
                yield range(start, run)
                start = None
            if self._runs.end_of(run) > self._begin:
                yield range(run, run + 1)
        if start is not None:
            yield range(start, end)

    def _adjacent(self, runs: range, rows: pa.Table) -> SamplePiece:
        first = int(self._runs.starts[runs.start])
        ends = [int(self._runs.starts[run + 1]) - first for run in runs]
        return SamplePiece(rows, ends, [self._place(run) for run in runs])

    def _add_run(self, run: int, rows: pa.Table) -> Iterator[SamplePiece]:
        first = self._runs.first_of(run)
        parts = self._waiting.setdefault(first, [])
        parts.append(rows.take(np.arange(rows.num_rows)))  # a slice would keep all rows around it in memory
        self._size += parts[-1].nbytes
        if self._runs.end_of(run) == self._runs.starts[run + 1]:
            del self._waiting[first]
            self._size -= sum(part.nbytes for part in parts)
            sample = pa.concat_tables(parts)
            yield SamplePiece(sample, [sample.num_rows], [self._place(run)])
        elif self._size > self._limit:
            raise FormatError(
                f"the rows of sample {rows['sample_id'][0].as_py()!r} are far apart, and over {self._limit:,} bytes "
                "wait for the rest of their samples: sort the rows by sample_id, or raise --max-decoded"
            )

    def _place(self, run: int) -> SamplePlace:
        end = self._runs.end_of(run)
        first, last = (bisect_right(self._files, row) - 1 for row in (self._runs.first_of(run), end - 1))
        return SamplePlace(last, end - self._files[last], first)
