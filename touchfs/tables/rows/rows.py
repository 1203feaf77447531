"""The files of a table's rows as arrays: a table may have millions of rows, and an object for each takes too long.

A reader of tables gives the rows in batches. All else follows from these arrays: samples for streams, and the columns
of catalogs (`touchfs.indexing.tables.row_tables`).
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from touchfs.catalog.catalog import Labels
from touchfs.catalog.rows.row_keys import RowKeys
from touchfs.core.names import ROW_JSON, distinct, hash_of, quote
from touchfs.form.base import Form
from touchfs.form.ordinals import pack_ordinal
from touchfs.shard.sample import Field, StoredSample, StoredSamples, UnmeasuredRecording

NO_FILE = -1
# The name of the files that hold all that has no file of its own.
ROW = "row"
# In bytes: with a number and an extension it fits into a file's name, and into the end of one.
_LABEL_MAX = 120


class CellKind(NamedTuple):
    """A kind of files of a column: the file of the shard that has them, their form, and the end of their names.

    With `by_ordinal` the detail of a file is the ordinal of its row.
    """

    source: str
    form: Form
    ending: bytes
    by_ordinal: bool = False

    @property
    def extension(self) -> str:
        """The end of the names without its dot or slash."""
        return os.fsdecode(self.ending[1:])


class CellKinds:
    """The kinds of the files of each column of a table, and of its rows as JSON, in the order in which they are met."""

    def __init__(self, naming: Naming, columns: int) -> None:
        self._naming = naming
        self._kinds: list[list[CellKind]] = [[] for _ in range(columns + 1)]

    def of(self, column: int) -> Sequence[CellKind]:
        """The kinds of a column; those of rows if −1. More may follow."""
        return self._kinds[column]

    def number(self, column: int, source: str, form: Form, extension: str, *, by_ordinal: bool = False) -> int:
        """The number of a kind of a column whose cells are in the shard's file `source`; new if the kind is new."""
        return self._number(column, CellKind(source, form, self._naming.ending(column, extension), by_ordinal))

    def row_number(self, source: str, form: Form) -> int:
        """The number of a kind of rows as JSON; new if the kind is new."""
        return self._number(-1, CellKind(source, form, self._naming.row_ending, by_ordinal=True))

    def _number(self, column: int, kind: CellKind) -> int:
        known = self._kinds[column]
        if kind not in known:
            known.append(kind)
        return known.index(kind)


@dataclass(frozen=True, slots=True, eq=False)
class ColumnFiles:
    """The files of a column in a batch of rows, or of their JSON. An element of each array is for a row.

    `kind` is an index into `kinds`, or `NO_FILE`; `size` is 0 if it is not known without reading. `details` are those
    of their forms; None if these need none, or the ordinals.
    """

    name: str
    kinds: Sequence[CellKind]
    kind: NDArray[np.int16]
    offset: NDArray[np.int64]
    length: NDArray[np.int64]
    size: NDArray[np.int64]
    details: Sequence[bytes] | None = None

    def field(self, row: int, ordinal: int) -> Field | None:
        """The file of a row of the batch as a field; None if it has none."""
        number = int(self.kind[row])
        if number == NO_FILE:
            return None
        kind = self.kinds[number]
        detail = pack_ordinal(ordinal) if kind.by_ordinal else b"" if self.details is None else self.details[row]
        offset, length = int(self.offset[row]), int(self.length[row])
        return Field(self.name, kind.source, offset, length, kind.form, kind.extension, detail=detail)


def without_files(columns: Sequence[ColumnFiles]) -> NDArray[np.bool_]:
    """The rows that have no file of any of these columns, which are at least one: bool[rows]."""
    found: NDArray[np.bool_] = np.all([column.kind == NO_FILE for column in columns], axis=0)
    return found


@dataclass(frozen=True, slots=True, eq=False)
class RowBatch:
    """Rows from the ordinal `first` on. `keys` are their keys, where there are some; `problems` are by ordinal.

    The columns are the same ones in all batches of a table, in the order of its files.
    """

    first: int
    rows: int
    columns: Sequence[ColumnFiles]
    keys: RowKeys | None = None
    problems: Sequence[tuple[int, str]] = ()


class WholeColumn(NamedTuple):
    """A column as one file: its name in `columns/`, the file of the shard that has it, and its form."""

    column: str
    name: bytes
    source: str
    form: Form


class TableRows(StoredSamples):
    """Base class for shards that are tables. Subclasses define `batch_of`, `is_nested` and `__len__`."""

    index_size = 0
    # True for `<key>/<column>.<extension>`, False for `<key>.<extension>`.
    is_nested: bool = False
    labels: Labels | None = None
    # The names of the classes of each column that has some.
    classes: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    _last: RowBatch | None = None

    @abstractmethod
    def batch_of(self, ordinal: int, *, full: bool = False) -> RowBatch:
        """The batch of rows that has an ordinal.

        With `full`, the rows are read to know the extension of each file and the size of each JSON.
        """

    def whole_columns(self) -> list[WholeColumn]:
        """The columns that are files as a whole. By default, there are none."""
        return []

    def sample(self, ordinal: int) -> StoredSample:
        """The sample at an ordinal. Its batch is kept for the next one."""
        batch = self._last
        if batch is None or not batch.first <= ordinal < batch.first + batch.rows:
            batch = self._last = self.batch_of(ordinal)
        row = ordinal - batch.first
        found = [field for column in batch.columns if (field := column.field(row, ordinal)) is not None]
        fields = dict(zip(distinct([field.name for field in found]), found, strict=True))
        key = None if batch.keys is None else batch.keys[row]
        problem = dict(batch.problems).get(ordinal, "") if batch.problems else ""
        return StoredSample(
            key or f"{ordinal:08d}",
            ordinal,
            fields,
            problem=problem,
            is_keyed=bool(key),
            recording=UnmeasuredRecording.first(fields.values()),
        )


class Naming:
    """The names of the files of a table. `columns` are the names of the columns whose cells are files.

    flat      `<key>.<extension>`, or `<key>.<column>.<extension>` if several columns have files; and `<key>.json`
    nested    `<key>/<column>.<extension>`, and `<key>/row.json`

    Columns that would have the same name get `~2`, `~3`, …. In the flat layout the files of columns in `whole` are
    `<key>.<extension>` always: these columns stand for different extensions. If one is json, a row is `<key>.row.json`.
    """

    def __init__(
        self, columns: Sequence[str], is_nested: bool, whole: Mapping[int, str] = MappingProxyType({})
    ) -> None:
        self._is_nested = is_nested
        self._is_single = len(columns) == 1
        self._whole = whole
        self._labels: list[bytes] = []
        taken = {ROW.encode()} if is_nested else set()
        for column in columns:
            label, number = _label(column, ""), 1
            while label in taken:
                number += 1
                label = _label(column, f"~{number}")
            taken.add(label)
            self._labels.append(label)

    def ending(self, column: int, extension: str) -> bytes:
        """The end of the names of a column's files, from the dot or the slash on."""
        if self._is_nested:
            return b"/" + self._labels[column] + b"." + extension.encode()
        if column in self._whole or (self._is_single and extension != "json"):
            return b"." + extension.encode()
        return b"." + self._labels[column] + b"." + extension.encode()

    @property
    def row_ending(self) -> bytes:
        """The end of the names of rows as JSON."""
        if self._is_nested:
            return b"/" + ROW_JSON.encode()
        return b"." + (ROW_JSON if "json" in self._whole.values() else "json").encode()


def _label(column: str, mark: str) -> bytes:
    quoted = quote(column)
    return (
        quoted + mark.encode()
        if len(quoted) <= _LABEL_MAX
        else b"%s%%~%016x%s" % (quoted[:_LABEL_MAX].decode("utf-8", "ignore").encode(), hash_of(quoted), mark.encode())
    )
