"""The cells of a column as bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from touchfs.core.errors import FormatError

if TYPE_CHECKING:
    import pyarrow


def bytes_of(cells: pyarrow.Array, place: str) -> list[bytes]:
    """The bytes of each cell, none for null: of bytes, of text as UTF-8, of lists of numbers as they are in memory.

    Raises FormatError for other types.
    """
    from pyarrow import types

    kind = cells.type
    if types.is_string(kind) or types.is_large_string(kind):
        return [(value or "").encode() for value in cells.to_pylist()]
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        return [value or b"" for value in cells.to_pylist()]
    valid = cells.is_valid().to_pylist()
    numbers, width = numbers_in(cells)
    if not types.is_primitive(numbers.type) or types.is_primitive(kind):
        raise FormatError(f"the catalog takes a column of {kind} for bytes: index with --force", path=place)
    rows = np.asarray(numbers.fill_null(0)).reshape(-1, width)
    return [row.tobytes() if is_valid else b"" for row, is_valid in zip(rows, valid, strict=True)]


def numbers_in(cells: pyarrow.Array) -> tuple[pyarrow.Array, int]:
    """The values in lists of a fixed size, end to end, and how many there are in a cell: 1 without lists."""
    import pyarrow

    width = 1
    while True:
        if isinstance(cells.type, pyarrow.BaseExtensionType):  # a tensor
            cells = cells.storage
        if not pyarrow.types.is_fixed_size_list(cells.type):
            return cells, width
        size = cells.type.list_size
        cells, width = cells.values.slice(cells.offset * size, len(cells) * size), width * size
