"""A shard that is an Arrow IPC file or stream: each row is a sample.

Where cells are, follows from the footer and the headers of messages. Of the data, only keys and the names that tell
extensions are read, and the first cell of each column whose extension nothing else tells.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from touchfs.catalog.rows.row_keys import RowKeys
from touchfs.core.errors import FormatError
from touchfs.core.extent import Extent, drive
from touchfs.core.progress import reached
from touchfs.form.base import Form
from touchfs.form.plain import BYTES
from touchfs.format import magic
from touchfs.format.arrow.batch import BatchLayout
from touchfs.format.arrow.cells import IN_FILE, Cells, ListCells, cells, list_cells
from touchfs.format.arrow.column import column_parts
from touchfs.shard.options import Options
from touchfs.shard.single import SingleFile
from touchfs.source.fingerprint import Files
from touchfs.tables.arrow.arrow_file import open_arrow
from touchfs.tables.arrow.packed import PackedCell, packed_detail
from touchfs.tables.rows.columns import ITEMS_MAX, CellColumn
from touchfs.tables.rows.extensions import UNKNOWN, cell_extensions, items_at
from touchfs.tables.rows.features import FeatureRows
from touchfs.tables.rows.json_rows import JsonRows
from touchfs.tables.rows.rows import NO_FILE, ColumnFiles, RowBatch, WholeColumn
from touchfs.tables.rows.whole_column import whole_columns
from touchfs.tables.shards.files import read_metadata
from touchfs.tables.values.field_paths import Path

# Lists of a column in a batch, whose places or names are in memory
_KEPT = 4


class ArrowShard(SingleFile, FeatureRows):
    """The rows of the Arrow file at `path`. Keeps 8 bytes a batch in memory."""

    def __init__(self, path: str, options: Options, files: Files) -> None:
        super().__init__(path, os.path.basename(path), files)
        self._limits = options.limits
        self._limit = options.limits.decoded
        metadata = read_metadata(path, files)
        self._table = open_arrow(self._file, options.limits)
        schema = self._table.ipc.schema
        self.problems: list[str] = []
        if metadata is not None:
            counted = metadata.shard_row_counts[metadata.shard_filenames.index(self._name)]
            if counted != len(self):
                self.problems.append(f"it has {len(self):,} rows, and _metadata.json says {counted:,}")
        # They are asked for once for each element of a list.
        self._list_cells = lru_cache(maxsize=_KEPT)(self._find_list_cells)
        self._read_lists = lru_cache(maxsize=_KEPT)(self._table.read_lists)
        declared = None if metadata is None else metadata.features
        self._describe(schema, declared, options, self._name)
        self._rows = JsonRows(self._table, schema, self._columns, self._key, self._kinds, self._name, options.partition)

    def __len__(self) -> int:
        return self._table.rows

    def batch_of(self, ordinal: int, *, full: bool = False) -> RowBatch:
        """See `TableRows.batch_of`: a record batch."""
        number, row = self._table.locate(ordinal)
        layout = self._table.layout(number)
        first = ordinal - row
        problems: list[tuple[int, str]] = []
        columns, partial = [], np.zeros((len(self._columns), layout.rows), np.bool_)
        for place, column in enumerate(self._columns):
            found = self._cells(number, layout, column)
            if found.partial is not None:
                partial[place] = found.partial
                found.valid[found.partial] = False
            columns.append(self._files(place, number, found, first, problems, full=full))
        columns.append(self._rows.files(first, partial, columns, problems, full=full))
        keys = None if self._key is None else self._keys(number)
        reached(layout.place.offset, self.size)
        return RowBatch(first, layout.rows, columns, keys, problems)

    def whole_columns(self) -> list[WholeColumn]:
        layouts = [self._table.layout(number) for number in range(self._table.batches)]
        schema = self._table.ipc.schema
        return whole_columns(
            schema, self._columns, self._name, len(self), lambda number: column_parts(layouts, (number,)) is None
        )

    def _files(
        self, place: int, number: int, found: Cells, first: int, problems: list[tuple[int, str]], *, full: bool
    ) -> ColumnFiles:
        column = self._columns[place]
        files = _Cells.of(found)
        kind = np.full(len(found.valid), NO_FILE, np.int16)
        size = found.lengths + (column.form.size(0, b"") or 0)
        fits = found.valid & column.fits(found.lengths)
        of_rows, extensions = self._extensions(place, number, found, full=full)
        for i, extension in enumerate(extensions):
            for is_packed in (False, True):
                mask = fits & (files.is_packed == is_packed) & (of_rows == i)
                if mask.any():
                    kind[mask] = self._kinds.number(place, self._name, files.form(column.form, is_packed), extension)
        for row in np.flatnonzero(found.valid & ~fits).tolist():
            problems.append((first + row, f"its {column.name!r} has not as many bytes as its shape says"))
            kind[row] = self._kinds.number(place, self._name, files.form(BYTES, bool(files.is_packed[row])), UNKNOWN)
            size[row] = found.lengths[row]
        size[~found.valid] = 0
        made = ColumnFiles(column.name, self._kinds.of(place), kind, files.offset, files.length, size, files.details)
        return self._with_videos(
            made, place, self.path, lambda path: self._table.read_values(number, path), first, problems
        )

    def _extensions(self, place: int, number: int, found: Cells, *, full: bool) -> tuple[NDArray[np.intp], list[str]]:
        """The extensions of a column's cells in a batch: for each row an index, and the extensions."""
        column = self._columns[place]

        def others(rows: Sequence[int]) -> Sequence[str]:
            if full:
                return [self._magic(found, row) if found.valid[row] else "" for row in rows]
            return [self._default(place) if found.valid.any() else ""] * len(rows)

        def names(path: Path) -> Sequence[str | None]:
            if column.item is None:
                return self._table.read_values(number, path)
            return items_at(self._read_lists(number, path), column.item)

        return cell_extensions(column, len(found.valid), names, others)

    def _longest(self, path: Path) -> int:
        """How many elements the lists of a column have at most that are files."""
        longest = 0
        try:
            for number in range(self._table.batches):
                longest = max(longest, int(self._list_cells(number, path).count.max(initial=0)))
        except FormatError:
            return 0  # they are in the JSON, which says what is damaged
        return min(longest, ITEMS_MAX)

    def _cells(self, number: int, layout: BatchLayout, column: CellColumn) -> Cells:
        if column.item is not None:
            lists = self._list_cells(number, column.path)
            return replace(lists.at(column.item), partial=lists.count > ITEMS_MAX)
        return drive(cells(layout, column.path, limit=self._limit), self._file)

    def _find_list_cells(self, number: int, path: Path) -> ListCells:
        return drive(list_cells(self._table.layout(number), path, self._limit), self._file)

    def _first_extension(self, place: int) -> str:
        for number in range(self._table.batches):
            found = self._cells(number, self._table.layout(number), self._columns[place])
            if found.valid.any():
                return self._magic(found, int(found.valid.argmax()))
        return UNKNOWN

    def _magic(self, found: Cells, row: int) -> str:
        files = _Cells.of(found, row)
        extent = Extent(self._file, int(files.offset[0]), int(files.length[0]))
        detail = b"" if files.details is None else files.details[0]
        content = files.form(BYTES, bool(files.is_packed[0])).content(extent, detail, self._limits)
        return magic.extension(content.read(0, magic.MAGIC_SIZE))

    def _keys(self, number: int) -> RowKeys:
        return RowKeys.of(self._table.read_array(number, (self._key or 0,)))


@dataclass(frozen=True, slots=True, eq=False)
class _Cells:
    """Ranges of the file that hold cells: the cell itself, or the compressed buffer that it is in."""

    offset: NDArray[np.int64]
    length: NDArray[np.int64]
    is_packed: NDArray[np.bool_]
    details: list[bytes] | None = None
    codec: str | None = None

    @classmethod
    def of(cls, found: Cells, row: int | None = None) -> _Cells:
        """The ranges of all rows, or of one row."""
        chosen = slice(None) if row is None else slice(row, row + 1)
        offset, length, valid = found.offsets[chosen], found.lengths[chosen], found.valid[chosen]
        if found.buffers is None or found.ranges is None:
            return cls(offset, length, np.zeros(len(valid), np.bool_))
        buffers = found.buffers[chosen]
        is_packed = valid & (buffers != IN_FILE)
        details = [
            packed_detail(start, size) if is_one else b""
            for start, size, is_one in zip(offset.tolist(), length.tolist(), is_packed.tolist(), strict=True)
        ]
        ranges = found.ranges[buffers]
        return cls(
            np.where(is_packed, ranges[:, 0], offset),
            np.where(is_packed, ranges[:, 1], length),
            is_packed,
            details,
            found.codec,
        )

    def form(self, form: Form, is_packed: bool) -> Form:
        return PackedCell(self.codec, form) if is_packed and self.codec is not None else form
