"""The places of the cells of a column of a Parquet file, page by page, for the pages that this process has looked at.

Cells of plain pages that are not compressed are ranges of the file. Other pages are decoded once: up to `Limits.window`
bytes of cells into memory, where they share the cache of `touchfs.form.computed`, more into the scratch store, which
all processes of the machine share. Places of cells are kept longer than the cells.
"""

from __future__ import annotations

import os
import threading
from bisect import bisect_right, insort
from collections.abc import Hashable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from touchfs.core.errors import FormatError, SourceError
from touchfs.core.extent import Content, Extent, Source
from touchfs.core.names import hex_digest
from touchfs.form.computed import ComputedContent
from touchfs.limits import Limits
from touchfs.posix.bounded_cache import BoundedCache
from touchfs.source.scratch.source import ScratchSource
from touchfs.source.scratch.store import Scratch
from touchfs.source.store import StoredFile
from touchfs.tables.values.field_paths import Path, build_path
from touchfs.tables.values.kept_values import KEPT_BYTES, NBYTES
from touchfs.tables.values.open_files import OpenTableFiles

if TYPE_CHECKING:
    from touchfs.tables.parquet.open_file import OpenParquet

PIECE_SIZE = 1 << 20


@dataclass(frozen=True, slots=True, eq=False)
class CellPlaces:
    """The places of the cells of a page, whose first row is `first`, in a source. A null has no bytes."""

    first: int
    source: Source
    offsets: NDArray[np.int64]
    lengths: NDArray[np.int64]

    @property
    def nbytes(self) -> int:
        """The bytes of memory that the places take."""
        return self.offsets.nbytes + self.lengths.nbytes

    def cell(self, row: int) -> Extent:
        """The bytes of the cell of a row of the file."""
        i = row - self.first
        return Extent(self.source, int(self.offsets[i]), int(self.lengths[i]))


class _Locks:
    """Locks of columns: of those that share one, pages are looked at one after the other."""

    def __init__(self) -> None:
        self._after_fork()
        os.register_at_fork(after_in_child=self._after_fork)

    def _after_fork(self) -> None:
        self._locks = [threading.Lock() for _ in range(16)]  # another thread may have held one at the fork

    def of(self, column: object) -> threading.Lock:
        return self._locks[hash(column) % len(self._locks)]


_locks = _Locks()
# Of all columns of this process.
_PLACES: BoundedCache[Hashable, CellPlaces] = BoundedCache(KEPT_BYTES, NBYTES)
# The bytes that cells are in, of which the store did not take some.
_DECODED: BoundedCache[Hashable, memoryview] = BoundedCache(KEPT_BYTES, NBYTES)


class ParquetCells:
    """The cells of the column of bytes or text at a path. Safe for any number of threads.

    Methods raise the errors of `OpenParquet`, and FormatError for a row that is not there.
    """

    def __init__(self, source: StoredFile, path: Path, limits: Limits) -> None:
        self._source = source
        self._path = path
        self._limits = limits
        # The first row of each page that was looked at, and the row after its last.
        self._firsts: list[int] = []
        self._stops: dict[int, int] = {}

    def known(self, row: int) -> Extent | None:
        """The cell of a row, if this process has looked at its page. Never waits."""
        i = bisect_right(self._firsts, row) - 1
        if i < 0 or row >= self._stops[first := self._firsts[i]]:
            return None
        page = _PLACES.find((self, first))
        return None if page is None else page.cell(row)

    def cell(self, row: int) -> Extent:
        """The cell of a row; of no bytes for null. Reading it may decode its page again."""
        found = self.known(row)
        if found is None:
            with _locks.of(self):
                found = self.known(row)
                if found is None:
                    found = self._find(row).cell(row)
        return found

    def _find(self, row: int) -> CellPlaces:
        from touchfs.tables.parquet.open_file import open_parquet

        table = open_parquet(self._source, self._limits)
        if not 0 <= row < table.rows:
            raise FormatError(f"the table has no row {row}: index with --force")
        rows = table.page_rows(self._path, row)
        batch, start = table.locate(rows.start)
        ranges = table.cell_ranges(self._path, batch, start, len(rows))
        if ranges is None:
            page = self._decode(table, rows)
        else:
            page = CellPlaces(rows.start, self._source, ranges.offsets, ranges.lengths)
        _PLACES.keep((self, rows.start), page)
        if rows.start not in self._stops:
            self._stops[rows.start] = rows.stop
            insort(self._firsts, rows.start)
        return page

    def _decode(self, table: OpenParquet, rows: range) -> CellPlaces:
        large = table.large_cells(self._path, rows, self._limits.window)
        if large is not None:
            ranges, data, is_dictionary = large
            where = f"dictionary {table.locate(rows.start)[0]}" if is_dictionary else f"page {rows.start}"
            return CellPlaces(rows.start, self._content(table, rows, data, where), ranges.offsets, ranges.lengths)
        ends, data = table.cell_buffers(self._path, rows)
        content = self._content(table, rows, data, f"{rows.start}")
        return CellPlaces(rows.start, content, ends[:-1].copy(), np.diff(ends))

    def _content(self, table: OpenParquet, rows: range, data: memoryview, where: str) -> Content:
        """The bytes that the cells of a page are in. `where` tells them from others of the column."""
        size, name = len(data), None
        if self._source.identity is not None:
            name = f"parquet cells\0{self._source.identity}\0{build_path(self._path)}\0{where}"
        if size > self._limits.window and name is not None:
            # Without room in the store, or without the store, the last page stays in memory.
            with suppress(SourceError):
                hashed = hex_digest(name.encode(errors="surrogateescape"))
                pieces = (data[first : first + PIECE_SIZE] for first in range(0, size, PIECE_SIZE))
                return Extent(ScratchSource(Scratch.configured().make(hashed, pieces, size)), 0, size)
        del data  # the content must not keep it

        key = name or object()

        def decode() -> memoryview:
            large = table.large_cells(self._path, rows, self._limits.window)
            return table.cell_buffers(self._path, rows)[1] if large is None else large[1]

        def render(offset: int, length: int) -> bytes:
            return bytes(_DECODED.get(key, decode)[offset : offset + length])

        return ComputedContent(size, max(min(size, self._limits.window), 1), render, name)


class _FileCells:
    """The columns of a file whose cells this process has looked up."""

    def __init__(self, source: StoredFile, limits: Limits) -> None:
        self._source = source
        self._limits = limits
        self._columns: dict[Path, ParquetCells] = {}

    def column(self, path: Path) -> ParquetCells:
        found = self._columns.get(path)
        return found or self._columns.setdefault(path, ParquetCells(self._source, path, self._limits))


_files = OpenTableFiles(_FileCells)


def open_cells(source: StoredFile, path: Path, limits: Limits) -> ParquetCells:
    """The cells at a path of the file in a source, which is opened and verified. Raises the errors of sources."""
    return _files.get(source, limits).column(path)


def find_cells(source: StoredFile, path: Path, limits: Limits) -> ParquetCells | None:
    """The cells at a path of the file in a source, if this process has looked some up. Never waits."""
    found = _files.find(source, limits)
    return None if found is None else found.column(path)
