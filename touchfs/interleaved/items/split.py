"""Split a table of items into tables of a limited size, without splitting a sample.

NeMo Curator 1.4 estimates sizes by the mean of all rows, so a batch of large rows can be many times over the limit, and
it splits samples whose rows are not adjacent. Here each row is measured, and the rows of a sample are put together.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from touchfs.core.errors import ArgumentValueError
from touchfs.interleaved.items.sizes import row_bytes


def split_by_size(
    table: pa.Table,
    max_batch_bytes: int | None,
    max_batch_rows: int | None = None,
    *,
    group_column: str = "sample_id",
    sizes: NDArray[np.int64] | None = None,
) -> Iterator[pa.Table]:
    """Yield tables of whole samples, of at most so many bytes and rows; a larger sample is a table of its own.

    `sizes` are bytes of each row, shape (rows,), by default `row_bytes(table)`. Without limits, and if the table has no
    rows, it is yielded as it is. Otherwise samples keep their order, by their first rows, and the rows of a sample
    theirs. Raises ArgumentValueError for a limit that is not positive, for a missing column, and for ids that are null.
    """
    for name, limit in (("max_batch_bytes", max_batch_bytes), ("max_batch_rows", max_batch_rows)):
        if limit is not None and limit <= 0:
            raise ArgumentValueError(f"{name} must be > 0, got {limit}")
    if group_column not in table.column_names:
        raise ArgumentValueError(f"Group column '{group_column}' not found in table")
    if table[group_column].null_count:
        raise ArgumentValueError(f"Group column '{group_column}' contains null values")
    if table.num_rows == 0 or (max_batch_bytes is None and max_batch_rows is None):
        return iter((table,))
    measured = row_bytes(table) if sizes is None else sizes
    table, measured, starts = _by_sample(table, measured, group_column)
    return _slices(table, measured, starts, max_batch_bytes, max_batch_rows)


def _by_sample(
    table: pa.Table, sizes: NDArray[np.int64], group_column: str
) -> tuple[pa.Table, NDArray[np.int64], NDArray[np.int64]]:
    """Return the table and its sizes with the rows of each sample together, and where each sample starts."""
    # The numbers of ids in order of their first rows.
    numbers = table[group_column].combine_chunks().dictionary_encode().indices.to_numpy()
    if (np.diff(numbers) < 0).any():
        order = np.argsort(numbers, kind="stable")
        table, sizes, numbers = table.take(pa.array(order)), sizes[order], numbers[order]
    return table, sizes, np.flatnonzero(np.diff(numbers, prepend=-1))


def _slices(
    table: pa.Table,
    sizes: NDArray[np.int64],
    starts: NDArray[np.int64],
    max_bytes: int | None,
    max_rows: int | None,
) -> Iterator[pa.Table]:
    ends = np.append(starts[1:], table.num_rows)
    sample_bytes = np.add.reduceat(sizes, starts)
    first, total = 0, 0
    for start, end, size in zip(starts.tolist(), ends.tolist(), sample_bytes.tolist(), strict=True):
        is_full = (max_bytes is not None and total + size > max_bytes) or (
            max_rows is not None and end - first > max_rows
        )
        if start > first and is_full:
            yield table.slice(first, start - first)
            first, total = start, 0
        total += size
    yield table.slice(first)
