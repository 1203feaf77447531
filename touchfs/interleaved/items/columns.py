"""Columns of a table as lists, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa


def column_values(table: pa.Table, name: str) -> list[Any]:
    """Return the values of a column, with a value for each row; nulls if there is no such column."""
    return table[name].to_pylist() if name in table.column_names else [None] * table.num_rows


def with_column(table: pa.Table, name: str, values: pa.Array | pa.ChunkedArray) -> pa.Table:
    """Return the table with these values in a column, which is the last one if it is new."""
    if name not in table.column_names:
        return table.append_column(name, values)
    return table.set_column(table.column_names.index(name), name, values)


def binary_array(values: Sequence[bytes | None]) -> pa.LargeBinaryArray:
    """Return bytes as an Arrow array. They are copied once; `pa.array` copies them each time that its buffer grows."""
    lengths = np.fromiter((0 if value is None else len(value) for value in values), np.int64, len(values))
    offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths)))
    is_valid = pa.array([value is not None for value in values], pa.bool_()).buffers()[1]
    data = pa.py_buffer(b"".join(value for value in values if value is not None))
    return pa.Array.from_buffers(pa.large_binary(), len(values), [is_valid, pa.py_buffer(offsets), data])
