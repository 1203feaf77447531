"""Int96 timestamps, which pyarrow decodes to nanoseconds, and wraps what does not fit: as their bytes, and checked.

A value is nanoseconds of a day in 64 bits, and a Julian day in 32 bits. No field of the footer describes it; Impala and
Spark agree. Source: github.com/apache/spark, ParquetRowConverter.scala, and touchfs.tables.values.json_values
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from touchfs.core.errors import FormatError
from touchfs.tables.parquet.layout.schema import ParquetLeaf, ParquetSchema, PhysicalType
from touchfs.tables.values.json_values import int96_moments

if TYPE_CHECKING:
    import pyarrow

    from touchfs.tables.parquet.columns import LeafReader

# The days from 1970 that nanoseconds of 64 bits reach
_DAYS_MAX = 106_751


def as_bytes(leaf: ParquetLeaf) -> ParquetLeaf:
    """A leaf of Int96 timestamps as one of their bytes."""
    return replace(leaf, type=PhysicalType.FIXED_LEN_BYTE_ARRAY)


def check_nanoseconds(values: pyarrow.Array, leaf: ParquetLeaf) -> None:
    """Raise FormatError if timestamps, as their bytes, do not fit into nanoseconds of 64 bits."""
    from pyarrow import types

    while values.type.num_fields:
        values = values.flatten()[0] if types.is_struct(values.type) else values.flatten()
    days, _ = int96_moments(values)
    if (abs(days[np.asarray(values.is_valid())]) >= _DAYS_MAX).any():
        raise FormatError(f"column {'.'.join(leaf.names)!r} has Int96 timestamps outside of 1677 to 2262")


class Int96Values:
    """The values of leaves as `LeafValues` has them, but Int96 timestamps are bytes, of the type `INT96`."""

    def __init__(self, values: LeafReader, tree: ParquetSchema) -> None:
        self._values = values
        self._tree = tree

    @cached_property
    def schema(self) -> pyarrow.Schema:
        """The Arrow schema of the file, with the type of these timestamps."""
        from touchfs.tables.values.leaf_types import INT96, with_leaves

        schema = self._values.schema
        for number in sorted({leaf.column for leaf in self._tree.leaves if leaf.type == PhysicalType.INT96}):
            leaves = iter(self._tree.leaves_at((number,)))

            def marked(kind: pyarrow.DataType, leaves: Iterator[int] = leaves) -> pyarrow.DataType:
                return INT96 if self._tree.leaves[next(leaves)].type == PhysicalType.INT96 else kind

            field = schema.field(number)
            schema = schema.set(number, field.with_type(with_leaves(field.type, marked)))
        return schema

    def read(self, leaf: ParquetLeaf, group: int, first: int, count: int) -> pyarrow.Array:
        if leaf.type != PhysicalType.INT96:
            return self._values.read(leaf, group, first, count)
        from touchfs.tables.values.leaf_types import INT96, with_leaves

        found = self._values.read(as_bytes(leaf), group, first, count)
        return found.view(with_leaves(found.type, lambda _: INT96))
