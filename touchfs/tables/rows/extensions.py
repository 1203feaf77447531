"""The extensions of the files of a column."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from touchfs.tables.rows.columns import CellColumn

# The extension of a file of an unknown kind.
UNKNOWN = "bin"
_EXTENSION = re.compile("[A-Za-z0-9]{1,10}")


def extension_of(name: str | None) -> str:
    """The extension in a name, or that is the name; "" if it has none."""
    if not name:
        return ""
    _, dot, last = name.rpartition(".")
    return last.lower() if dot and _EXTENSION.fullmatch(last) else ""


def cell_extensions(
    column: CellColumn,
    rows: int,
    values: Callable[[tuple[int, ...]], Sequence[str | None]],
    others: Callable[[Sequence[int]], Sequence[str]],
) -> tuple[NDArray[np.intp], list[str]]:
    """The extensions of the cells of a column in a batch of rows: for each row an index, and the extensions.

    The column's own counts first, then the names beside a cell, which `values` returns by path. `others` gets the rows
    without one, and returns an extension for each.
    """
    if column.extension:
        return np.zeros(rows, np.intp), [column.extension]
    chosen = [""] * rows
    for path in column.named_by:
        chosen = [each or extension_of(name) for each, name in zip(chosen, values(path), strict=True)]
    missing = [row for row, extension in enumerate(chosen) if not extension]
    if missing:
        for row, extension in zip(missing, others(missing), strict=True):
            chosen[row] = extension
    different = set(chosen)
    return (np.zeros(rows, np.intp), [*different]) if len(different) == 1 else numbered(chosen)


def items_at(lists: Sequence[Sequence[str | None] | None], item: int) -> list[str | None]:
    """The element of this number of each list; None where it has not as many."""
    return [each[item] if each is not None and len(each) > item else None for each in lists]


def numbered(extensions: Sequence[str]) -> tuple[NDArray[np.intp], list[str]]:
    """Number the extensions of rows: an index for each row, and the extension of each index."""
    different, of_rows = np.unique(np.array(extensions, np.str_), return_inverse=True)
    return of_rows.reshape(-1), different.tolist()
