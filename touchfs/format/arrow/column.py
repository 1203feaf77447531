"""Columns of numbers as a whole: the ranges that hold their values, one for each batch, found without a read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from touchfs.core.errors import FormatError
from touchfs.format.arrow.batch import BatchLayout
from touchfs.format.arrow.cells import has_cells, levels, value_width
from touchfs.format.arrow.schema import IpcField


class ColumnPart(NamedTuple):
    """The values of a column in a batch: the offset and length in the file of their buffer, and their own length.

    They are at the beginning of the buffer, or of what `codec` makes of it.
    """

    offset: int
    stored: int
    length: int
    codec: str | None = None


def numbers_of(chain: Sequence[IpcField]) -> tuple[np.dtype[Any], tuple[int, ...]] | None:
    """Return the dtype of a column, and the shape of each of its rows, if it is of numbers or of fixed lists of them.

    `chain` are the fields to it (see `IpcSchema.chain`). None for other columns, and for rows without a number.
    """
    if not has_cells(chain):
        return None
    *lists, (field, count) = levels(chain[-1])
    shape = tuple(each.type.size for each, _ in lists)
    return (field.type.dtype, shape) if field.type.dtype is not None and count else None


def column_parts(layouts: Iterable[BatchLayout], path: Sequence[int]) -> list[ColumnPart] | None:
    """Return where the numbers of a column are in each batch; None if some are null, as a .npy has no nulls.

    Raises FormatError for a damaged batch, and for a column that has no numbers (see `numbers_of`).
    """
    parts: list[ColumnPart] = []
    fields: list[tuple[IpcField, int]] = []
    width = 0
    for layout in layouts:
        if not fields:  # all batches have one schema
            chain = layout.schema.chain(path)
            if numbers_of(chain) is None:
                raise FormatError(f"column {chain[0].name!r} has no numbers", offset=layout.place.offset)
            fields = [*((parent, 1) for parent in chain[:-1]), *levels(chain[-1])]
            width = value_width(chain[-1]) or 0
        for field, each in fields:
            if layout.nulls(field):
                return None
            layout.check_count(field, each)
        length = layout.rows * width
        offset, stored = layout.buffer(fields[-1][0], 1)
        if layout.codec is None and stored < length:
            raise FormatError(f"column {fields[-1][0].name!r} has only {stored} bytes", offset=layout.place.offset)
        parts.append(ColumnPart(offset, length if layout.codec is None else stored, length, layout.codec))
    return parts
