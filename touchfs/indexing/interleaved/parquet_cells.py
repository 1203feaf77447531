"""Cells of texts and images in a row group of a Parquet file, as fields."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from touchfs.core.errors import FormatError
from touchfs.form.ordinals import pack_ordinal
from touchfs.form.plain import BYTES
from touchfs.format import magic
from touchfs.shard.sample import Field
from touchfs.source.store import StoredFile
from touchfs.tables.parquet.layout.cell_ranges import CellRanges
from touchfs.tables.parquet.open_file import OpenParquet
from touchfs.tables.parquet.parquet_cell import ParquetCell
from touchfs.tables.values.field_paths import Path


class PayloadCells:
    """The cells of a row group in columns at some `paths`, by name. `source` is the name of the file in the shard.

    All methods take the number of a row in the file.
    """

    def __init__(
        self, table: OpenParquet, file: StoredFile, source: str, batch: int, paths: Mapping[str, Path]
    ) -> None:
        self._table = table
        self._file = file
        self._source = source
        self._first = int(table.starts[batch])
        self._paths = paths
        self._ranges: dict[str, CellRanges] = {}
        self._valid: dict[str, NDArray[np.bool_]] = {}
        self._heads: dict[int, bytes] = {}  # of the rows of one page
        self._problems: dict[str, str] = {}
        for name, path in paths.items():
            try:
                ranges = table.cell_ranges(path, batch)
                self._valid[name] = table.validity(path, batch, full=True) if ranges is None else ranges.valid
            except FormatError as error:
                self._problems[name] = f"the column {name} is damaged here: {error.message}"
            else:
                if ranges is not None:
                    self._ranges[name] = ranges

    def check(self, name: str) -> None:
        """Raise FormatError if it is not known which cells of a column are null."""
        if name in self._problems:
            raise FormatError(self._problems[name])

    def has(self, name: str, row: int) -> bool:
        return name in self._valid and bool(self._valid[name][row - self._first])

    def field(self, name: str, row: int, kind: str, extension: str) -> Field:
        """The field of a cell that is not null. `kind` is its name in catalogs."""
        ranges = self._ranges.get(name)
        if ranges is None:
            form = ParquetCell(self._paths[name], BYTES)
            return Field(kind, self._source, 0, 0, form, extension, detail=pack_ordinal(row))
        place = row - self._first
        offset, length = int(ranges.offsets[place]), int(ranges.lengths[place])
        return Field(kind, self._source, offset, length, BYTES, extension)

    def extension(self, name: str, row: int) -> str:
        """The extension that the first bytes of a cell tell. Raises FormatError if its page is damaged."""
        ranges = self._ranges.get(name)
        if ranges is not None:
            place = row - self._first
            length = min(int(ranges.lengths[place]), magic.MAGIC_SIZE)
            return magic.extension(self._file.read(int(ranges.offsets[place]), length))
        if row not in self._heads:
            page = self._table.page_rows(self._paths[name], row)
            cells = self._table.cells(self._paths[name], page)
            heads = [(cell or b"")[: magic.MAGIC_SIZE] for cell in cells]
            self._heads = dict(zip(page, heads, strict=True))
        return magic.extension(self._heads[row])
