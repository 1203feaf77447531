"""Columns from their leaves: structs, lists and maps of one child each become those of all children."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from touchfs.core.errors import FormatError

if TYPE_CHECKING:
    import pyarrow


def leaves_of(kind: pyarrow.DataType) -> int:
    """The number of leaves that a type has in a Parquet file."""
    import pyarrow

    if isinstance(kind, pyarrow.BaseExtensionType):
        return leaves_of(kind.storage_type)
    if pyarrow.types.is_dictionary(kind) or not kind.num_fields:
        return 1
    return sum(leaves_of(kind.field(i).type) for i in range(kind.num_fields))


def storage_of(kind: pyarrow.DataType) -> pyarrow.DataType:
    """A type with the storage of extension types instead of these: pyarrow makes none of some leaves of it only."""
    import pyarrow

    types = pyarrow.types
    if isinstance(kind, pyarrow.BaseExtensionType):
        return storage_of(kind.storage_type)
    if types.is_map(kind):
        fields = kind.key_field, kind.item_field
    else:
        fields = tuple(kind.field(i) for i in range(kind.num_fields))
    stored = [field.with_type(storage_of(field.type)) for field in fields]
    if all(new.type == old.type for new, old in zip(stored, fields, strict=True)):
        return kind
    if types.is_struct(kind):
        return pyarrow.struct(stored)
    if types.is_map(kind):
        return pyarrow.map_(*stored)
    if types.is_fixed_size_list(kind):
        return pyarrow.list_(stored[0], kind.list_size)
    return (pyarrow.large_list if types.is_large_list(kind) else pyarrow.list_)(stored[0])


def join_leaves(kind: pyarrow.DataType, parts: Mapping[int, pyarrow.Array]) -> pyarrow.Array:
    """The array of a type from arrays of the same rows, each with one leaf of it: by the numbers of the leaves in it.

    Leaves that are not there are left out of structs. Raises FormatError if the lists of leaves differ.
    """
    import pyarrow

    arrays = list(parts.values())
    if isinstance(kind, pyarrow.BaseExtensionType):
        return join_leaves(kind.storage_type, parts)
    if len(arrays) == 1 or not kind.num_fields:
        return arrays[0]
    valid = np.asarray(arrays[0].is_valid())
    if any(not np.array_equal(np.asarray(array.is_valid()), valid) for array in arrays):
        raise FormatError("the fields of a Parquet column have different nulls")
    if pyarrow.types.is_struct(kind):
        children = _children(kind, {number: array.field(0) for number, array in parts.items()})
        fields = [pyarrow.field(name, child.type) for name, child in children]
        return pyarrow.StructArray.from_arrays(
            [child for _, child in children], fields=fields, mask=pyarrow.array(~valid)
        )
    if pyarrow.types.is_fixed_size_list(kind):
        values = {
            number: array.values[array.offset * kind.list_size :][: len(array) * kind.list_size]
            for number, array in parts.items()
        }
        joined = join_leaves(kind.value_type, values)
        return pyarrow.FixedSizeListArray.from_arrays(joined, kind.list_size, mask=pyarrow.array(~valid))
    return _lists(kind, parts, valid)


def _children(kind: pyarrow.DataType, parts: Mapping[int, pyarrow.Array]) -> list[tuple[str, pyarrow.Array]]:
    """The children of a struct of a type that are there."""
    found, first = [], 0
    for i in range(kind.num_fields):
        field = kind.field(i)
        end = first + leaves_of(field.type)
        inner = {number - first: array for number, array in parts.items() if first <= number < end}
        if inner:
            found.append((field.name, join_leaves(field.type, inner)))
        first = end
    return found


def _lists(kind: pyarrow.DataType, parts: Mapping[int, pyarrow.Array], valid: NDArray[np.bool_]) -> pyarrow.Array:
    """Lists or maps."""
    import pyarrow

    offsets: NDArray[np.int64] | None = None
    values = {}
    for number, array in parts.items():
        ends = np.asarray(array.offsets).astype(np.int64)
        if offsets is not None and not np.array_equal(ends - ends[0], offsets):
            raise FormatError("the fields of a Parquet column have lists of different lengths")
        offsets = ends - ends[0]
        values[number] = array.values.slice(int(ends[0]), int(offsets[-1]))
    is_large = pyarrow.types.is_large_list(kind)
    width = pyarrow.int64() if is_large else pyarrow.int32()
    starts = pyarrow.array(offsets, width, mask=np.append(~valid, False))  # a null offset makes its list null
    joined = join_leaves(kind.field(0).type, values)
    if pyarrow.types.is_map(kind):
        return pyarrow.MapArray.from_arrays(starts, joined.field(0), joined.field(1))
    return (pyarrow.LargeListArray if is_large else pyarrow.ListArray).from_arrays(starts, joined)
