"""About how many bytes the values of Arrow columns take in Python, from their lengths alone.

A small file may hold large values: a list of nulls takes no bytes whatever its length, and views, dictionaries and runs
name the same bytes again and again. So this is looked at before values are made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pyarrow

# An object and the reference to it
VALUE_SIZE = 32.0
# How often values are in memory while they become objects of Python, and while they become JSON: as Arrow has them, as
# Python does, as base64, as text of which the encoder makes two, and as UTF-8.
PYTHON_COPIES, JSON_COPIES = 2, 6
# Floats, because nothing says that lengths multiplied fit into integers. One number if all values take the same.
Sizes: TypeAlias = NDArray[Any] | float


def total_size(array: pyarrow.Array) -> float:
    """The bytes of all values of a valid array. A text counts with its UTF-8."""
    sizes = _sizes(array)
    return sizes * len(array) if isinstance(sizes, float) else float(sizes.sum())


def _sizes(array: pyarrow.Array) -> Sizes:
    import pyarrow

    types, kind = pyarrow.types, array.type
    if not len(array):
        return VALUE_SIZE
    if isinstance(kind, pyarrow.BaseExtensionType):
        return _sizes(array.storage)
    if types.is_dictionary(kind):
        return _sizes_at(array.dictionary, np.asarray(array.indices.fill_null(0)).astype(np.int64))
    if types.is_run_end_encoded(kind):
        return _largest([array.values])
    if types.is_union(kind):
        return _largest([array.field(i) for i in range(kind.num_fields)])
    if types.is_struct(kind):
        children: list[Sizes] = [_sizes(array.field(i)) for i in range(kind.num_fields)]
        return sum(children, VALUE_SIZE)
    if types.is_fixed_size_list(kind):
        first = array.offset * kind.list_size
        found = _sizes(array.values.slice(first, len(array) * kind.list_size))
        if isinstance(found, float):
            return VALUE_SIZE + found * int(kind.list_size)
        return np.asarray(VALUE_SIZE + found.reshape(len(array), kind.list_size).sum(axis=1))
    if types.is_map(kind) or types.is_list(kind) or types.is_large_list(kind):
        offsets = np.asarray(array.offsets).astype(np.int64)
        return _list_sizes(array, offsets[:-1], np.diff(offsets))
    if types.is_list_view(kind) or types.is_large_list_view(kind):
        return _list_sizes(array, np.asarray(array.offsets).astype(np.int64), np.asarray(array.sizes).astype(np.int64))
    if types.is_fixed_size_binary(kind):
        return VALUE_SIZE + float(kind.byte_width)
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind) or _is_text(kind):
        import pyarrow.compute

        if _is_view(kind):
            return VALUE_SIZE + _view_lengths(array)
        return VALUE_SIZE + np.asarray(pyarrow.compute.binary_length(array).fill_null(0)).astype(np.float64)
    return VALUE_SIZE


def viewed_size(array: pyarrow.Array) -> float:
    """The bytes that all views in an array name, which may be damaged: pyarrow looks at each of them to check it."""
    import pyarrow

    types, kind = pyarrow.types, array.type
    if isinstance(kind, pyarrow.BaseExtensionType):
        return viewed_size(array.storage)
    if types.is_dictionary(kind):
        return viewed_size(array.dictionary)
    if types.is_struct(kind) or types.is_union(kind):
        return sum((viewed_size(array.field(i)) for i in range(kind.num_fields)), 0.0)
    if kind.num_fields:
        return viewed_size(array.values)
    return float(_view_lengths(array).sum()) if _is_view(kind) and len(array) else 0.0


def _is_view(kind: pyarrow.DataType) -> bool:
    from pyarrow import types

    return bool(types.is_binary_view(kind) or types.is_string_view(kind))


def _is_text(kind: pyarrow.DataType) -> bool:
    from pyarrow import types

    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _view_lengths(array: pyarrow.Array) -> NDArray[Any]:
    """The lengths of values of views: the first four of their 16 bytes. Those of nulls count too."""
    buffer = array.buffers()[1]
    views = np.frombuffer(buffer or b"", "<i4", (buffer.size if buffer else 0) // 4)[4 * array.offset :]
    return views[: 4 * len(array) : 4].astype(np.float64)


def _list_sizes(array: pyarrow.Array, starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> Sizes:
    """The sizes of lists with these ranges of the elements, which may overlap."""
    if not lengths.any():
        return VALUE_SIZE
    first, end = int(starts[lengths > 0].min()), int((starts + lengths).max())
    found = _sizes(array.values.slice(first, end - first))
    if isinstance(found, float):
        return np.asarray(VALUE_SIZE + found * lengths)
    before = np.append(0.0, np.cumsum(found))
    starts = np.where(lengths > 0, starts - first, 0)
    return np.asarray(VALUE_SIZE + before[starts + lengths] - before[starts])


def _sizes_at(values: pyarrow.Array, places: NDArray[np.int64]) -> Sizes:
    if not len(places) or not len(values):
        return VALUE_SIZE
    first = int(places.min())
    found = _sizes(values.slice(first, int(places.max()) + 1 - first))
    return found if isinstance(found, float) else np.asarray(found[places - first])


def _largest(arrays: list[pyarrow.Array]) -> float:
    return VALUE_SIZE + max((float(np.max(_sizes(each))) for each in arrays if len(each)), default=0.0)
