"""The cells of a column as bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from touchfs.errors import FormatError

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
    width = 1
    valid = cells.is_valid().to_pylist()
    while types.is_fixed_size_list(cells.type):
        size = cells.type.list_size
        cells, width = cells.values.slice(cells.offset * size, len(cells) * size), width * size
    if not types.is_primitive(cells.type) or width == 1:
        raise FormatError(f"the catalog takes a column of {kind} for bytes: index with --force", path=place)
    rows = np.asarray(cells.fill_null(0)).reshape(-1, width)
    return [row.tobytes() if is_valid else b"" for row, is_valid in zip(rows, valid, strict=True)]
