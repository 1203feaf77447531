"""Make the columns of a catalog for a table whose files are named by the ordinals of their rows: from arrays, without
an object for each file.

`touchfs.catalog.derived` describes the columns that need not be stored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from touchfs.catalog.columns import TableColumns
from touchfs.catalog.derived import DERIVED, NO_SAMPLE, ROWS_MAX, Implied
from touchfs.catalog.table import UNKEYED
from touchfs.core.errors import FormatError
from touchfs.form.ordinals import pack_ordinal
from touchfs.format.arrow.mapped_columns import BinaryColumn, Column

# Names have 8 digits, and so their order is that of the ordinals.
ORDINALS_MAX = 10**8


@dataclass(frozen=True, slots=True, eq=False)
class FileArrays:
    """The files of rows: arrays of shape (rows, columns). `kind` is 0 where a row has no file of a column.

    `frames` has the lengths of recordings, else 0. `detail` has those of their forms; None if the detail of each file
    is its ordinal, or is not needed.
    """

    kind: NDArray[np.int64]
    offset: NDArray[np.int64]
    length: NDArray[np.int64]
    size: NDArray[np.int64]
    frames: NDArray[np.int64]
    detail: NDArray[np.object_] | None = None

    def in_order(self, ranks: NDArray[np.int64]) -> FileArrays:
        """The files of each row in the order of the ranks of their kinds."""
        places = ranks[self.kind]
        if len(places) and (places == places[0]).all():
            columns = np.argsort(places[0], kind="stable")
            return self._each(lambda part: part[:, columns])
        order = np.argsort(places, axis=1, kind="stable")
        return self._each(lambda part: np.take_along_axis(part, order, axis=1))

    def _each(self, change: Callable[[NDArray[Any]], NDArray[Any]]) -> FileArrays:
        detail = None if self.detail is None else change(self.detail)
        kind, offset, length, size, frames = map(change, (self.kind, self.offset, self.length, self.size, self.frames))
        return FileArrays(kind, offset, length, size, frames, detail)

    @classmethod
    def of_no_rows(cls) -> FileArrays:
        """The files of a table without rows."""
        nothing = np.zeros((0, 1), np.int64)
        return cls(nothing, nothing, nothing, nothing, nothing)


def can_be_derived(kind: NDArray[np.int64], *, is_nested: bool) -> bool:
    """True if names follow from ordinals: they have 8 digits, and each row of a nested table has a directory."""
    return len(kind) <= ORDINALS_MAX and (not is_nested or bool((kind > 0).any(axis=1).all()))


def row_columns(
    files: FileArrays, kind_names: Sequence[str], *, is_nested: bool, report: tuple[int, bytes] | None = None
) -> TableColumns:
    """The columns of the view of a table. `kind_names` are those of `FileKind`, from kind 1 on.

    A `report` is the kind and the content of a file of no sample, whose name sorts after all digits. Raises FormatError
    for too many files.
    """
    rows = len(files.kind)
    ordered = files.in_order(_ranks(kind_names))
    shown = ordered.kind > 0
    counts = shown.sum(axis=1)
    total, reports = int(counts.sum()), int(report is not None)
    before, after = (1 + rows + reports, 0) if is_nested else (1, reports)
    every = before + total + after
    if every > ROWS_MAX:
        raise FormatError(f"{every} files in one shard; at most {ROWS_MAX} fit")
    kind, offset, length, size, frames = (
        np.concatenate((np.zeros(before, part.dtype), part[shown], np.zeros(after, part.dtype)))
        for part in (ordered.kind, ordered.offset, ordered.length, ordered.size, ordered.frames)
    )
    ordinal = np.full(every, NO_SAMPLE, np.uint32)
    ordinal[before : before + total] = np.repeat(np.arange(rows, dtype=np.uint32), counts)
    offset[0] = 1
    if is_nested:
        offset[1 : 1 + rows] = before + np.cumsum(counts) - counts
        length[1 : 1 + rows] = counts
    details = None if ordered.detail is None else [b""] * before + ordered.detail[shown].tolist() + [b""] * after
    if report is not None:
        place = 1 + rows if is_nested else before + total
        kind[place], content = report
        size[place] = len(content)
        details = [pack_ordinal(each) for each in ordinal.tolist()] if details is None else details
        details[place] = content
    return {
        "name": Implied(DERIVED["name"]),
        "parent": Implied(DERIVED["parent"]) if is_nested else _constant(0, every),
        "kind": kind,
        "ordinal": ordinal,
        "part": _constant(0, every),
        "offset": offset,
        "length": length,
        "size": size,
        "frames": frames,
        "suffix": Implied(DERIVED["suffix"]),
        "keyed": _constant(UNKEYED, every),
        "order": Implied(DERIVED["order"]),
        "key": BinaryColumn(_constant(0, every + 1), memoryview(b"")),
        "inline": Implied(DERIVED["inline"]) if details is None else BinaryColumn.of(details),
    }


def few_files(kinds: Sequence[int], other: TableColumns) -> TableColumns:
    """The columns of a view with a file of no sample of each of some kinds, in the order of the names of these. Their
    forms know their sizes.

    `other` are the columns of another view of the catalog.
    """
    count = 1 + len(kinds)
    columns = row_columns(FileArrays.of_no_rows(), (), is_nested=False)
    columns = {name: _constant(0, count) if isinstance(each, np.ndarray) else each for name, each in columns.items()}
    offset = np.zeros(count, np.int64)
    offset[0] = 1
    stored: dict[str, Column | Implied] = {
        "kind": np.array([0, *kinds]),
        "ordinal": _constant(NO_SAMPLE, count),
        "offset": offset,
        "parent": _constant(0, count),
        "key": BinaryColumn(_constant(0, count + 1), memoryview(b"")),
        "inline": BinaryColumn.of([b""] * count),
    }
    implied = {name: Implied(DERIVED[name]) for name in stored if isinstance(other[name], Implied)}
    return {**columns, **stored, **implied}


def _ranks(kind_names: Sequence[str]) -> NDArray[np.int64]:
    """The place of each kind in the order of names; that of kind 0, which is no file, is the last one."""
    ordered = sorted(range(len(kind_names)), key=lambda kind: kind_names[kind].encode("utf-8", "surrogateescape"))
    ranks = np.full(len(kind_names) + 1, len(kind_names))
    ranks[np.array(ordered, np.int64) + 1] = np.arange(len(kind_names))
    return ranks


def _constant(value: int, count: int) -> NDArray[np.int64]:
    return np.broadcast_to(np.int64(value), (count,))
