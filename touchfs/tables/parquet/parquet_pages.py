"""The places of the cells of a column of a Parquet file, page by page, for the pages that this process has looked at.

Cells of plain pages that are not compressed are ranges of the file. Other pages are decoded once: up to `_SMALL` bytes
of cells into memory, where they share the cache of `touchfs.form.computed`, more into the scratch store, which all
processes of the machine share. There the places of the cells are, too, so the next process decodes nothing: as of
workers that load the same images in another order. Places of cells are kept longer than the cells.
"""

from __future__ import annotations

import os
import struct
import threading
from bisect import bisect_right, insort
from collections.abc import Callable, Hashable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from touchfs.core.errors import FormatError, SourceError
from touchfs.core.extent import Buffer, Extent, Source
from touchfs.core.names import hex_digest
from touchfs.form.computed import ComputedContent
from touchfs.limits import Limits
from touchfs.posix.bounded_cache import BoundedCache
from touchfs.posix.processes import system
from touchfs.source.scratch.file import ScratchFile
from touchfs.source.scratch.source import ScratchSource
from touchfs.source.scratch.store import Scratch
from touchfs.source.store import StoredFile
from touchfs.tables.parquet.open_file import OpenParquet, open_parquet
from touchfs.tables.values.field_paths import Path, build_path
from touchfs.tables.values.kept_values import KEPT_BYTES, NBYTES
from touchfs.tables.values.open_files import OpenTableFiles

PIECE_SIZE = 1 << 20
# Decoding a page of so many bytes takes no longer than opening a file.
_SMALL = 1 << 17
# What the bytes are that cells are in: those of a page, of the dictionary of its chunk, or of a page that was decoded.
_PAGE, _DICTIONARY, _DECODED_PAGE = range(3)
# Of kept places: which of these the bytes are, and how many. Offsets and lengths follow.
_KEPT = struct.Struct("<BQ")
_PLACE = np.dtype("<i8")


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
# The files of the store that have the bytes that cells are in: at most 128, as each takes two descriptors, and of
# 256 MiB, which the store cannot evict.
_FILES: BoundedCache[str, ScratchSource] = BoundedCache(1 << 28, lambda file: max(file.size, 1 << 21))
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
        self._small = min(_SMALL, limits.window)
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
        table = open_parquet(self._source, self._limits)
        if not 0 <= row < table.rows:
            raise FormatError(f"the table has no row {row}: index with --force")
        # Nearly always a row group of images is a page: so nothing of the group is parsed if the page is kept.
        start = int(table.starts[table.locate(row)[0]])
        page = self._kept_places(table, start)
        if page is None or row >= start + len(page.lengths):
            page = self._page(table, table.page_rows(self._path, row))
        _PLACES.keep((self, page.first), page)
        if page.first not in self._stops:
            self._stops[page.first] = page.first + len(page.lengths)
            insort(self._firsts, page.first)
        return page

    def _page(self, table: OpenParquet, rows: range) -> CellPlaces:
        batch, start = table.locate(rows.start)
        ranges = table.cell_ranges(self._path, batch, start, len(rows))
        if ranges is not None:
            return CellPlaces(rows.start, self._source, ranges.offsets, ranges.lengths)
        kept = self._kept_places(table, rows.start)
        if kept is not None and len(kept.lengths) == len(rows):
            return kept
        large = table.large_cells(self._path, rows, self._small)
        if large is not None:
            ranges, data, is_dictionary = large
            kind, offsets, lengths = _DICTIONARY if is_dictionary else _PAGE, ranges.offsets, ranges.lengths
        else:
            ends, data = table.cell_buffers(self._path, rows)
            kind, offsets, lengths = _DECODED_PAGE, ends[:-1].copy(), np.diff(ends)
        content = self._content(table, rows, kind, data)
        if len(data) > self._small:
            self._keep_places(rows, kind, len(data), np.concatenate((offsets, lengths)))
        return CellPlaces(rows.start, content, offsets, lengths)

    def _kept_places(self, table: OpenParquet, first: int) -> CellPlaces | None:
        """The places of the cells of a page, by its first row, that a process has decoded into the scratch store."""
        name, value = self._name(f"places {first}"), None
        with suppress(SourceError):
            value = None if name is None else Scratch.configured().kept(_hashed(name))
        if value is None or len(value) <= _KEPT.size or (len(value) - _KEPT.size) % (2 * _PLACE.itemsize):
            return None
        kind, size = _KEPT.unpack_from(value)
        offsets, lengths = np.frombuffer(value, _PLACE, offset=_KEPT.size).reshape(2, -1)
        return CellPlaces(first, self._content(table, range(first, first + len(lengths)), kind, size), offsets, lengths)

    def _keep_places(self, rows: range, kind: int, size: int, places: NDArray[np.int64]) -> None:
        if (name := self._name(f"places {rows.start}")) is not None:
            with suppress(SourceError):
                Scratch.configured().keep(_hashed(name), _KEPT.pack(kind, size) + places.astype(_PLACE).tobytes())

    def _name(self, what: str) -> str | None:
        """The name of what is kept of the column, None if nothing may be. `what` tells it from all else."""
        identity = self._source.identity
        return None if identity is None else f"parquet cells\0{identity}\0{build_path(self._path)}\0{what}"

    def _content(self, table: OpenParquet, rows: range, kind: int, found: memoryview | int) -> Source:
        """The bytes that the cells of a page are in: `found`, or of that number, if they have been found before."""
        where = {_PAGE: f"page {rows.start}", _DICTIONARY: f"dictionary {table.locate(rows.start)[0]}"}
        name = self._name(where.get(kind, f"{rows.start}"))
        size, data = (found, None) if isinstance(found, int) else (len(found), found)

        def decode() -> memoryview:
            # By kind and not by size: places that were kept may be of a process with another window.
            large = None if kind == _DECODED_PAGE else table.large_cells(self._path, rows, -1)
            return table.cell_buffers(self._path, rows)[1] if large is None else large[1]

        if size > self._small and name is not None:
            return _StoredBytes(_hashed(f"{name}\0{_boot()}"), decode, size, data)
        key = name or object()

        def render(offset: int, length: int) -> bytes:
            return bytes(_DECODED.get(key, decode)[offset : offset + length])

        return ComputedContent(size, max(min(size, self._limits.window), 1), render, name)


def _hashed(name: str) -> str:
    return hex_digest(name.encode(errors="surrogateescape"))


def _pieces(decode: Callable[[], memoryview]) -> Iterator[memoryview]:
    data = decode()
    for first in range(0, len(data), PIECE_SIZE):
        yield data[first : first + PIECE_SIZE]


class _StoredBytes:
    """Bytes that are a file of the scratch store, by its name: a `Source`. Where it is not there, as it was evicted or
    had no room, they are decoded again.

    Such files are not flushed to the disk, which may take longer than to decode them. So their names have the boot:
    after another one, that of a crash, they are not the ones that are looked for.
    """

    __slots__ = ("_decode", "_name", "_size")

    def __init__(self, name: str, decode: Callable[[], memoryview], size: int, data: memoryview | None) -> None:
        self._name = name
        self._decode = decode
        self._size = size
        if data is not None:
            self._stored(lambda: data)

    def _stored(self, decode: Callable[[], memoryview]) -> ScratchSource | None:
        """The file; None without room in the store, or without the store."""
        with suppress(SourceError):
            return _FILES.get(self._name, lambda: ScratchSource(self._made(decode)))
        return None

    def _made(self, decode: Callable[[], memoryview]) -> ScratchFile:
        return Scratch.configured().make(self._name, _pieces(decode), self._size, is_flushed=False)

    def read(self, offset: int, length: int) -> Buffer:
        file = _FILES.find(self._name) or self._stored(self._decode)
        if file is not None:
            return file.read(offset, length)
        return bytes(_DECODED.get(self._name, self._decode)[offset : offset + length])

    def read_nowait(self, offset: int, length: int) -> Buffer | None:
        file = _FILES.find(self._name)
        return None if file is None else file.read_nowait(offset, length)


@lru_cache
def _boot() -> str:
    return system()[0]


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
