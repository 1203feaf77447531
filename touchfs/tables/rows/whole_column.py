"""Forms of whole columns of a table: numbers as one .npy, everything else as JSON lines.

Where the parts of a column are in the batches is found when it is first read. JSON lines are made once, batch by batch,
into the scratch store.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, cast

import numpy as np

from touchfs.core.errors import FormatError
from touchfs.core.extent import Buffer, Content, Extent
from touchfs.core.names import hex_digest
from touchfs.form.arrays import Npy
from touchfs.form.base import Form
from touchfs.form.kept import identity_of
from touchfs.format.arrow.column import column_parts, numbers_of
from touchfs.format.arrow.schema import IpcSchema
from touchfs.limits import Limits
from touchfs.posix.bounded_cache import BoundedCache
from touchfs.source.scratch.source import ScratchSource
from touchfs.source.scratch.store import Scratch
from touchfs.tables.rows.column import column_content, decoded_column
from touchfs.tables.rows.columns import CellColumn
from touchfs.tables.rows.rows import Naming, WholeColumn
from touchfs.tables.values.field_paths import Path, build_path, parse_path, wanted_columns

if TYPE_CHECKING:
    from touchfs.source.store import StoredFile
    from touchfs.tables.rows.open_table import OpenTable

# Each may have a descriptor open, or the places of its parts.
_KEPT = 64


@dataclass(frozen=True, slots=True)
class NumberColumn(Form):
    """`numbers/PATH/ROWS/DTYPE[/SHAPE…]`: a column of numbers without nulls as a .npy of so many rows."""

    path: Path
    rows: int
    row: Npy

    @classmethod
    def parse(cls, path: str, rows: str, dtype: str, *shape: str) -> NumberColumn:
        """The form with these parameters. Raises ValueError or FormatError."""
        return cls(parse_path(path), int(rows), Npy(dtype, tuple(map(int, shape))))

    def __str__(self) -> str:
        return f"numbers/{build_path(self.path)}/{self.rows}/{str(self.row).removeprefix('npy/')}"

    def size(self, length: int, detail: bytes) -> int:
        dtype = np.dtype(self.row.dtype)
        header = Npy(self.row.dtype, (self.rows, *self.row.shape)).size(0, b"")
        return header + dtype.itemsize * self.rows * prod(self.row.shape)

    def content(self, extent: Extent, detail: bytes, limits: Limits) -> Content:
        return _Later(f"{self}\0{_identity(extent)}", lambda: self._open(extent, limits), self.size(0, b""))

    def _open(self, extent: Extent, limits: Limits) -> Content:
        from touchfs.tables.arrow.arrow_file import ArrowFile

        table = _table(extent, limits)
        if not isinstance(table, ArrowFile):
            name = f"{self}\0{_identity(extent)}"
            return _made("decoded numbers", name, decoded_column(self.row, table, self.path[0]))
        parts = column_parts(map(table.layout, range(table.batches)), self.path)
        if parts is None or table.rows != self.rows:
            raise FormatError("the column is not the one that was indexed: index with --force")
        return column_content(self.row, parts, extent.source, limits)


@dataclass(frozen=True, slots=True)
class ValueColumn(Form):
    """`values/COLUMN[/PATH…]`: the values of a column as JSON lines, without the cells at some paths (as `Row`)."""

    column: int
    left_out: tuple[Path, ...] = ()

    @classmethod
    def parse(cls, column: str, *paths: str) -> ValueColumn:
        """The form with these parameters. Raises ValueError or FormatError."""
        return cls(parse_path(column)[0], tuple(map(parse_path, paths)))

    def __str__(self) -> str:
        return "/".join(["values", str(self.column), *map(build_path, self.left_out)])

    def size(self, length: int, detail: bytes) -> None:
        return None

    def content(self, extent: Extent, detail: bytes, limits: Limits) -> Content:
        return _Later(self._name(extent), lambda: self._open(extent, limits))

    def known_size(self, extent: Extent, detail: bytes, limits: Limits) -> int | None:
        content = _columns.find(self._name(extent))
        return None if content is None else content.size

    def _name(self, extent: Extent) -> str:
        return f"{self}\0{_identity(extent)}"

    def _open(self, extent: Extent, limits: Limits) -> Content:
        table = _table(extent, limits)

        def lines() -> Iterator[bytes]:
            for number in range(table.batches):
                for values in table.json_column(number, self.column, self.left_out):
                    texts = [json.dumps(value, ensure_ascii=False) + "\n" for value in values]
                    yield "".join(texts).encode("utf-8", "surrogatepass")

        return _made("arrow column", self._name(extent), lines())


def _made(kind: str, name: str, pieces: Iterator[bytes]) -> Content:
    """The content of pieces of a column that are made once, into the scratch store."""
    file = Scratch.configured().make(hex_digest(f"{kind}\0{name}".encode(errors="surrogateescape")), pieces)
    return Extent(ScratchSource(file), 0, os.fstat(file.fileno()).st_size)


def _table(extent: Extent, limits: Limits) -> OpenTable:
    from touchfs.tables.rows.open_table import open_table

    return open_table(cast("StoredFile", extent.source), limits)


def _identity(extent: Extent) -> str:
    source = cast("StoredFile", extent.source)
    return identity_of(Extent(source, 0, 0)) or str(id(source))


# The contents that were opened last.
_columns: BoundedCache[str, Content] = BoundedCache(_KEPT)


class _Later:
    """A content that is opened when it is first read, or its size is needed and not known. Both may block."""

    __slots__ = ("_make", "_name", "_size")

    def __init__(self, name: str, make: Callable[[], Content], size: int | None = None) -> None:
        self._name = name
        self._make = make
        self._size = size

    @property
    def size(self) -> int:
        return _columns.get(self._name, self._make).size if self._size is None else self._size

    def read(self, offset: int, length: int) -> Buffer:
        return _columns.get(self._name, self._make).read(offset, length)

    def read_nowait(self, offset: int, length: int) -> Buffer | None:
        content = _columns.find(self._name)
        return None if content is None else content.read_nowait(offset, length)


def whole_columns(
    schema: IpcSchema, cells: Sequence[CellColumn], source: str, rows: int, has_nulls: Callable[[int], bool]
) -> list[WholeColumn]:
    """Return the whole columns of a table of so many rows, in the order of its schema.

    `cells` are its columns whose cells are files; `source` is the file that the forms open. `has_nulls` is asked only
    for columns of numbers.
    """
    fields = schema.fields
    naming = Naming([field.name for field in fields], is_nested=True)
    left_out = dict.fromkeys(cell.path for cell in cells if numbers_of([fields[cell.path[0]]]) is None)
    found = []
    for number, field in enumerate(fields):
        form: Form
        numbers = numbers_of([field])
        if numbers is not None and not has_nulls(number):
            dtype, shape = numbers
            form, extension = NumberColumn((number,), rows, Npy(dtype.str, shape)), "npy"
        elif number in wanted_columns(schema, frozenset(left_out)):
            form, extension = ValueColumn(number, tuple(path for path in left_out if path[0] == number)), "jsonl"
        else:
            continue
        name = naming.ending(number, extension).removeprefix(b"/")
        found.append(WholeColumn(field.name, name, source, form))
    return found
