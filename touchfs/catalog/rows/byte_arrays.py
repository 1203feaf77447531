"""Arrow arrays of byte strings (`large_binary` without nulls): they join, choose and sort millions of names."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from touchfs.core.extras import load_pyarrow
from touchfs.format.arrow.mapped_columns import BinaryColumn

if TYPE_CHECKING:
    import pyarrow


def byte_array(values: pyarrow.Array | Iterable[bytes]) -> pyarrow.Array:
    """The array of these byte strings, or of an Arrow array of texts; null becomes empty."""
    arrow = load_pyarrow()
    if isinstance(values, arrow.Array):
        return values.cast(arrow.large_binary()).fill_null(b"")
    return arrow.array(list(values), arrow.large_binary())


def pieces(data: bytes, size: int) -> pyarrow.Array:
    """The array of byte strings of the same size that are one after the other in `data`."""
    arrow = load_pyarrow()
    buffers = [None, arrow.py_buffer(data)]
    return arrow.Array.from_buffers(arrow.binary(size), len(data) // size, buffers).cast(arrow.large_binary())


def concatenate(*parts: pyarrow.Array) -> pyarrow.Array:
    return load_pyarrow().concat_arrays(parts)


def take(values: pyarrow.Array, places: NDArray[np.integer[Any]]) -> pyarrow.Array:
    """The values at these places. The type of the array stays."""
    return values.take(load_pyarrow().array(places))


def join(first: pyarrow.Array, second: pyarrow.Array) -> pyarrow.Array:
    """Each value of the first array with the one of the second array behind it."""
    import pyarrow.compute as compute

    return compute.binary_join_element_wise(first, second, byte_array([b""])[0])


def where(condition: NDArray[np.bool_], values: pyarrow.Array) -> pyarrow.Array:
    """The values where the condition is true, and b"" elsewhere."""
    import pyarrow.compute as compute

    return compute.if_else(load_pyarrow().array(condition), values, byte_array([b""])[0])


def ends_in(values: pyarrow.Array, ending: bytes) -> NDArray[np.bool_]:
    """Find the values that end in this ending and are longer: bool[values]."""
    import pyarrow.compute as compute

    found: NDArray[np.bool_] = np.asarray(
        compute.and_(compute.ends_with(values, ending), compute.not_equal(values, ending))
    )
    return found


def has_match(values: pyarrow.Array, pattern: str) -> bool:
    """True if a regular expression of RE2 matches in one of the values, which are UTF-8."""
    import pyarrow.compute as compute

    return bool(compute.any(compute.match_substring_regex(values.cast("large_string"), pattern)).as_py())


def longest(values: pyarrow.Array) -> int:
    """The number of bytes of the longest value; 0 if there is none."""
    import pyarrow.compute as compute

    return int(compute.max(compute.binary_length(values)).as_py() or 0)


def are_equally_long(values: pyarrow.Array) -> bool:
    """True if all values have the same number of bytes."""
    import pyarrow.compute as compute

    return bool(compute.all(compute.equal(compute.binary_length(values), longest(values))).as_py())


def count_less(values: pyarrow.Array, limit: bytes) -> int | None:
    """The number of values that are before `limit` in their order. None if one is equal."""
    import pyarrow.compute as compute

    if compute.any(compute.equal(values, limit)).as_py():
        return None
    return int(compute.sum(compute.less(values, limit)).as_py() or 0)


def sorted_places(values: pyarrow.Array) -> NDArray[np.int64] | None:
    """The places of the values in ascending order. None if two values are equal."""
    import pyarrow.compute as compute

    order = compute.array_sort_indices(values)
    ordered = values.take(order)
    if compute.any(compute.equal(ordered[1:], ordered[:-1])).as_py():
        return None
    places: NDArray[np.int64] = np.asarray(order).astype(np.int64)
    return places


def binary_column(values: pyarrow.Array) -> BinaryColumn:
    """The values as a column of a catalog. Raises FormatError for 2 GiB or more."""
    _, offsets, data = values.buffers()
    starts = np.frombuffer(offsets, np.int64, len(values) + 1, 8 * values.offset)
    return BinaryColumn.at(starts - starts[0], memoryview(data or b"")[starts[0] : starts[-1]])
