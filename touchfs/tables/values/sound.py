"""Columns whose values can be read whatever a file has in them: one bad value damages itself.

pyarrow refuses a whole batch for one text that is not UTF-8, or a decimal over its precision. So the structure of a
column is checked here, which makes it safe to read; `touchfs.tables.values.json_values` has a text for any value then.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pyarrow

from touchfs.tables.values.leaf_types import DAMAGED, unchecked

# A column with more damaged rows is damaged as a whole: finding each takes time.
_DAMAGED_MAX = 1000


def sound(array: pyarrow.Array) -> pyarrow.Array:
    """The same values, with a note (`DAMAGED`) in place of each that cannot be read, as a code beyond its dictionary.

    Of lists, all count as damaged if their elements are.
    """
    if _problem(array) is None or _problem(stored := unchecked(array)) is None:
        return array
    shared = _problem(stored[:0])
    if shared is not None and pyarrow.types.is_struct(array.type) and _problem(stored, full=False) is None:
        children = [sound(array.field(i)) for i in range(array.type.num_fields)]
        fields = [array.type.field(i).with_type(child.type) for i, child in enumerate(children)]
        return pyarrow.StructArray.from_arrays(children, fields=fields, mask=array.is_null())
    damaged = {} if shared is not None else dict(_damaged_rows(stored, 0, len(stored), [_DAMAGED_MAX]))
    if shared is not None or len(damaged) > _DAMAGED_MAX:
        return _notes([shared or f"over {_DAMAGED_MAX:,} values are damaged"] * len(array))
    ends = [-1, *damaged, len(array)]
    good = pyarrow.concat_arrays([array[before + 1 : row] for before, row in pairwise(ends)])
    is_damaged = np.zeros(len(array), np.int8)
    is_damaged[[*damaged]] = 1
    places = np.where(is_damaged, np.cumsum(is_damaged) - 1, np.cumsum(1 - is_damaged) - 1).astype(np.int32)
    children = [good, _notes([*damaged.values()])]
    return pyarrow.UnionArray.from_dense(pyarrow.array(is_damaged), pyarrow.array(places), children)


def check_structure(array: pyarrow.Array) -> None:
    """Raise ArrowException for an array that cannot be read safely. Its values may be invalid."""
    if _problem(array) is not None:
        unchecked(array).validate(full=True)


def valid_or_null(array: pyarrow.Array) -> pyarrow.Array:
    """The same values, null in place of those that are invalid. Raises ArrowException for a damaged structure."""
    if _problem(array) is None:
        return array
    check_structure(array)
    parts = [array[row : row + 1] for row in range(len(array))]
    nothing = pyarrow.nulls(1, array.type)
    return pyarrow.concat_arrays([nothing if _problem(part) else part for part in parts])


def _problem(array: pyarrow.Array, *, full: bool = True) -> str | None:
    try:
        array.validate(full=full)
    except pyarrow.ArrowException as error:  # also ArrowIndexError, of views
        return str(error)
    return None


def _damaged_rows(array: pyarrow.Array, first: int, count: int, left: list[int]) -> Iterator[tuple[int, str]]:
    """Rows that are damaged, and what is wrong: one more at most than `left` has."""
    problem = _problem(array[first : first + count]) if count and left[0] >= 0 else None
    if problem is None:
        return
    if count == 1:
        left[0] -= 1
        yield first, problem
        return
    yield from _damaged_rows(array, first, count // 2, left)
    yield from _damaged_rows(array, first + count // 2, count - count // 2, left)


def _notes(lines: list[str]) -> pyarrow.Array:
    return pyarrow.ExtensionArray.from_storage(DAMAGED, pyarrow.array(lines, pyarrow.string()))
