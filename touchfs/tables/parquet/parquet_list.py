"""The form of lists of numbers in a Parquet file, which become arrays."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, cast

import numpy as np

from touchfs.core.errors import FormatError
from touchfs.core.extent import Content, Extent
from touchfs.form.arrays import Npy
from touchfs.form.base import Form
from touchfs.form.computed import ComputedContent
from touchfs.form.kept import identity_of
from touchfs.form.ordinals import parse_ordinal
from touchfs.limits import Limits

if TYPE_CHECKING:
    from touchfs.source.store import StoredFile


@dataclass(frozen=True, slots=True)
class ParquetList(Form):
    """`parquet-list/COLUMN/DTYPE/N[/M…]`: a list of numbers of a fixed size as a .npy. `detail` packs the ordinal of
    its row.
    """

    column: int
    array: Npy

    @classmethod
    def parse(cls, column: str, dtype: str, *shape: str) -> ParquetList:
        """The form with these parameters. Raises ValueError or FormatError."""
        return cls(int(column), Npy(dtype, tuple(map(int, shape))))

    def __post_init__(self) -> None:
        if self.column < 0 or not self.array.shape:
            raise FormatError(f"no list is in column {self.column} with the shape {self.array.shape}")

    def __str__(self) -> str:
        return f"parquet-list/{self.column}/{str(self.array).removeprefix('npy/')}"

    def size(self, length: int, detail: bytes) -> int:
        return self.array.size(self._stored, detail)

    def content(self, extent: Extent, detail: bytes, limits: Limits) -> Content:
        source = cast("StoredFile", extent.source)
        row = parse_ordinal(detail)

        def render(offset: int, length: int) -> bytes:
            from touchfs.tables.parquet.open_file import open_parquet
            from touchfs.tables.values.cell_bytes import bytes_of

            table = open_parquet(source, limits)
            others = [(other,) for other in range(len(table.ipc_schema.fields)) if other != self.column]
            cells = table.read(row, 1, others)
            if cells.num_columns != 1 or cells.num_rows != 1:
                raise FormatError(f"the table has no row {row}: index with --force")
            return bytes_of(cells.column(0), source.path)[0]

        identity = identity_of(Extent(source, 0, 0))
        name = None if identity is None else (str(self), identity, row)
        computed = ComputedContent(self._stored, max(self._stored, 1), render, name)
        return self.array.content(Extent(computed, 0, self._stored), b"", limits)

    @property
    def _stored(self) -> int:
        return np.dtype(self.array.dtype).itemsize * prod(self.array.shape)
