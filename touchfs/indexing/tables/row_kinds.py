"""The kinds of the files of a shard that is a table, and their numbers in its catalog."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from touchfs.catalog.catalog import KINDS_MAX, FileKind
from touchfs.core.errors import FormatError
from touchfs.core.names import REPORT
from touchfs.form.plain import INLINE
from touchfs.indexing.tables.row_lengths import Variant
from touchfs.tables.rows.rows import CellKind, ColumnFiles, WholeColumn


class _RowKind(NamedTuple):
    """A kind of files in rows: the name of its column, the kind of the cells, and what measuring found."""

    column: str
    cell: CellKind
    variant: Variant = Variant()


class RowKinds:
    """The kinds of the files of a table, numbered in the order of its columns from 1 on."""

    def __init__(self, columns: Sequence[Sequence[ColumnFiles]]) -> None:
        # The lists of kinds of all batches are the same objects, and complete now.
        self._all: list[_RowKind] = []
        self._first: list[int] = []
        self._counts: list[int] = []
        self._has_names = True
        self._has_report = False
        self._whole: list[WholeColumn] = []
        for column in columns[-1] if columns else ():
            self._first.append(len(self._all) + 1)
            self._counts.append(len(column.kinds))
            self._all += [_RowKind(column.name, kind) for kind in column.kinds]
        self._check_count()

    def _check_count(self) -> None:
        if len(self._all) >= KINDS_MAX:
            raise FormatError(f"over {KINDS_MAX} kinds of files in one shard: are its names and sample rates right?")

    def add(self, number: int, variant: Variant) -> int:
        """The number of a new kind: that of a number, after measuring."""
        self._all.append(self._all[number - 1]._replace(variant=variant))
        self._check_count()
        return len(self._all)

    @property
    def cells(self) -> list[CellKind]:
        """The kinds of the cells, from kind 1 on."""
        return [kind.cell for kind in self._all]

    def numbers(self, place: int) -> NDArray[np.int64]:
        """The numbers of a column's kinds, and 0 for `NO_FILE`, which is the last index."""
        first, count = self._first[place], self._counts[place]
        return np.array([*range(first, first + count), 0])

    @property
    def names(self) -> list[str]:
        """The names of the kinds (`FileKind.name`)."""
        return [kind.name for kind in self.described()]

    def add_report(self) -> int:
        """The number of the kind of `ERROR.txt`."""
        self._has_report = True
        return len(self._all) + 1

    def whole(self, column: WholeColumn) -> int:
        """The number of the kind of a whole column, which is new."""
        self._whole.append(column)
        return len(self._all) + self._has_report + len(self._whole)

    def forget_names(self) -> None:
        """Leave the names of kinds away: the catalog stores those of all files."""
        self._has_names = False

    def described(self) -> list[FileKind]:
        """The kinds as a catalog stores them."""
        described = [
            FileKind(column, cell.source, str(cell.form), *variant, name=self._name(cell.ending))
            for column, cell, variant in self._all
        ]
        if self._has_report:
            described.append(FileKind("error", "", str(INLINE), name=REPORT if self._has_names else ""))
        for column in self._whole:
            name = os.fsdecode(column.name) if self._has_names else ""
            described.append(FileKind(column.column, column.source, str(column.form), name=name))
        return described

    def _name(self, ending: bytes) -> str:
        if not self._has_names:
            return ""
        return "/" + ending.decode("utf-8", "surrogateescape")
