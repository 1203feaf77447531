"""The places of the cells of a column of a Parquet file, page by page, for the pages that this process has looked at.

Cells of plain pages that are not compressed are ranges of the file. Other pages are decoded once: up to `_SMALL` bytes
of cells into memory, where they share the cache of `touchfs.form.computed`, more into a file of the scratch store,
which all processes of the machine share. It begins with the places of the cells, so the next process opens one file
and decodes nothing: as of workers that load the same images in another order. Nor does it parse the footer, as the
first rows of row groups are kept, too. Places of cells are kept longer than the cells.
"""

from __future__ import annotations

import os
import struct
import threading
from bisect import bisect_right, insort
from collections.abc import Callable, Hashable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np
from numpy.typing import NDArray

from touchfs.core.errors import FormatError, SourceError
from touchfs.core.extent import Buffer, Extent, Source
from touchfs.core.names import hex_digest
from touchfs.form.computed import ComputedContent
from touchfs.limits import Limits
from touchfs.posix.bounded_cache import BoundedCache
from touchfs.posix.processes import system
from touchfs.source.scratch.source import ScratchSource
from touchfs.source.scratch.store import Scratch
from touchfs.source.store import StoredFile
from touchfs.tables.parquet.open_file import OpenParquet, open_parquet
from touchfs.tables.values.field_paths import Path, build_path
from touchfs.tables.values.kept_values import KEPT_BYTES, NBYTES

PIECE_SIZE = 1 << 20
# Columns of files, of which little is kept.
CELLS_KEPT = 4096
# Decoding a page of so many bytes takes no longer than opening a file.
_SMALL = 1 << 17
# What the bytes are that cells are in: of a page, of a dictionary that pages share, or of a page that was decoded.
_PAGE, _DICTIONARY, _DECODED_PAGE = range(3)
# The file of a page begins with this: which of these the bytes are, the number of the row group, and those of cells and
# of bytes. The offsets of all cells in the bytes follow, their lengths, and the bytes, unless they are a dictionary,
# which has a file of its own.
_HEAD = struct.Struct("<4q")
_PLACE = np.dtype("<i8")
_STARTS = "parquet starts\0"


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
        return Extent(self.source, self.offsets.item(i), self.lengths.item(i))


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
# By the identity of the file, the path, and the limits that count here.
_CELLS: BoundedCache[Hashable, ParquetCells] = BoundedCache(CELLS_KEPT)
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
        # The first rows of row groups, once they are known.
        self._starts: NDArray[np.int64] | None = None

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
        page = self._kept_page(row)
        if page is None:
            table = open_parquet(self._source, self._limits)
            if not 0 <= row < table.rows:
                raise FormatError(f"the table has no row {row}: index with --force")
            page = self._page(table, table.page_rows(self._path, row))
        _PLACES.keep((self, page.first), page)
        if page.first not in self._stops:
            self._stops[page.first] = page.first + len(page.lengths)
            insort(self._firsts, page.first)
        return page

    def _kept_page(self, row: int) -> CellPlaces | None:
        """The page with a row if it begins a row group, as nearly all pages of images do, and is kept."""
        starts = self._kept_starts()
        if starts is None:
            return None
        first = starts.item(starts.searchsorted(row, "right") - 1)
        page = self._kept(first)
        return page if page is not None and first <= row < first + len(page.lengths) else None

    def _page(self, table: OpenParquet, rows: range) -> CellPlaces:
        batch, start = table.locate(rows.start)
        ranges = table.cell_ranges(self._path, batch, start, len(rows))
        if ranges is not None:
            return CellPlaces(rows.start, self._source, ranges.offsets, ranges.lengths)
        kept = self._kept(rows.start)
        if kept is not None and len(kept.lengths) == len(rows):
            return kept
        large = table.large_cells(self._path, rows, self._small)
        if large is not None:
            ranges, data, is_shared = large
            kind, offsets, lengths = _DICTIONARY if is_shared else _PAGE, ranges.offsets, ranges.lengths
        else:
            ends, data = table.cell_buffers(self._path, rows)
            kind, offsets, lengths = _DECODED_PAGE, ends[:-1].copy(), np.diff(ends)
        name = self._name(f"cells {rows.start}")
        if len(data) <= self._small or name is None:
            return CellPlaces(rows.start, self._in_memory(rows, kind, batch, len(data)), offsets, lengths)
        self._keep_starts(table)
        places = np.concatenate((offsets, lengths)).astype(_PLACE)
        head = _HEAD.pack(kind, batch, len(rows), len(data)) + places.tobytes()
        page, stored = self._stored(rows.start, name, head)
        stored.store(data)
        if kind == _DICTIONARY:
            with suppress(SourceError):
                Scratch.configured().make(name, [head], len(head), is_flushed=False)
        return page

    def _kept(self, first: int) -> CellPlaces | None:
        """The page whose first row this is, if a process has decoded it into the scratch store."""
        name = self._name(f"cells {first}")
        if name is None:
            return None
        with suppress(SourceError):
            file = Scratch.configured().find(name)
            if file is not None and (head := _read_head(source := ScratchSource(file))) is not None:
                page, stored = self._stored(first, name, head)
                if stored.name == name:
                    _FILES.keep(name, source)
                return page
        return None

    def _stored(self, first: int, name: str, head: bytes) -> tuple[CellPlaces, _StoredBytes]:
        """A page by what its file begins with, which has this name, and the bytes that its cells are in."""
        kind, batch, count, size = _HEAD.unpack_from(head)
        offsets, lengths = np.frombuffer(head, _PLACE, offset=_HEAD.size).reshape(2, -1)
        if kind == _DICTIONARY:
            name, head = self._name(f"dictionary {batch}") or name, b""
        stored = _StoredBytes(name, head, size, partial(self._decoded, range(first, first + count), kind))
        return CellPlaces(first, stored, offsets, lengths), stored

    def _decoded(self, rows: range, kind: int) -> memoryview:
        """The bytes that the cells of a page are in, decoded again."""
        table = open_parquet(self._source, self._limits)
        if rows.stop > table.rows or table.page_rows(self._path, rows.start) != rows:
            raise FormatError("the scratch store has another page of it: name another --scratch-dir")
        # By kind and not by size: places that were kept may be of a process with another window.
        large = None if kind == _DECODED_PAGE else table.large_cells(self._path, rows, -1)
        return table.cell_buffers(self._path, rows)[1] if large is None else large[1]

    def _in_memory(self, rows: range, kind: int, batch: int, size: int) -> Source:
        """The bytes that the cells of a small page are in, or of one whose file has no identity."""
        where = {_PAGE: f"page {rows.start}", _DICTIONARY: f"dictionary {batch}"}
        name = self._name(where.get(kind, f"{rows.start}"))
        key = name or object()

        def render(offset: int, length: int) -> bytes:
            return bytes(_DECODED.get(key, lambda: self._decoded(rows, kind))[offset : offset + length])

        return ComputedContent(size, max(min(size, self._limits.window), 1), render, name)

    def _kept_starts(self) -> NDArray[np.int64] | None:
        """The first rows of row groups, if they are kept. What they say is not believed, so they are not checked."""
        identity = self._source.identity
        if self._starts is None and identity is not None:
            with suppress(SourceError):
                value = Scratch.configured().kept(_hashed(f"{_STARTS}{identity}"))
                if value and len(value) % _PLACE.itemsize == 0:
                    self._starts = np.frombuffer(value, _PLACE)
        return self._starts

    def _keep_starts(self, table: OpenParquet) -> None:
        if self._starts is None:
            self._starts = table.starts
            with suppress(SourceError):
                value = table.starts.astype(_PLACE).tobytes()
                Scratch.configured().keep(_hashed(f"{_STARTS}{self._source.identity}"), value)

    def _name(self, what: str) -> str | None:
        """The name of what is kept of the column, None if nothing may be. `what` tells it from all else.

        Files are not flushed to the disk, which may take longer than to decode them. So their names have the boot:
        after another one, that of a crash, they are not the ones that are looked for.
        """
        identity = self._source.identity
        if identity is None:
            return None
        return _hashed(f"parquet cells\0{identity}\0{build_path(self._path)}\0{what}\0{_boot()}")


def _hashed(name: str) -> str:
    return hex_digest(name.encode(errors="surrogateescape"))


def _read_head(file: ScratchSource) -> bytes | None:
    """What the file of a kept page begins with; None if it is damaged."""
    stored = file.size
    if stored < _HEAD.size:
        return None
    kind, batch, count, size = _HEAD.unpack(file.read(0, _HEAD.size))
    length = _HEAD.size + 2 * count * _PLACE.itemsize
    if min(batch, count - 1, size) < 0 or stored != length + (0 if kind == _DICTIONARY else size):
        return None
    head = file.read(0, length)
    # As numbers without a sign, negative ones are too large.
    offsets, lengths = np.frombuffer(head, _PLACE, offset=_HEAD.size).reshape(2, -1).view(np.uint64)
    is_inside = (offsets <= size) & (lengths <= size - offsets)
    return head if is_inside.all() else None


class _StoredBytes:
    """The bytes after the `head` of a file of the scratch store, by its name: a `Source`. Where the file is not there,
    as it was evicted or had no room, or is damaged, they are decoded again.
    """

    __slots__ = ("_decode", "_head", "_size", "name")

    def __init__(self, name: str, head: bytes, size: int, decode: Callable[[], memoryview]) -> None:
        self.name = name
        self._head = head
        self._size = size
        self._decode = decode

    def store(self, data: memoryview) -> None:
        """Write the file, which has these bytes."""
        self._file(lambda: data)

    def _file(self, decode: Callable[[], memoryview]) -> ScratchSource | None:
        """The file; None without room in the store, or without the store."""
        with suppress(SourceError):
            return _FILES.get(self.name, lambda: self._made(decode))
        return None

    def _made(self, decode: Callable[[], memoryview]) -> ScratchSource:
        size = len(self._head) + self._size
        made = ScratchSource(Scratch.configured().make(self.name, self._pieces(decode), size, is_flushed=False))
        if made.size != size:
            raise SourceError("is damaged", path=made.path)
        return made

    def _pieces(self, decode: Callable[[], memoryview]) -> Iterator[Buffer]:
        yield self._head
        data = decode()
        for first in range(0, len(data), PIECE_SIZE):
            yield data[first : first + PIECE_SIZE]

    def read(self, offset: int, length: int) -> Buffer:
        file = _FILES.find(self.name) or self._file(self._decode)
        if file is not None:
            return file.read(len(self._head) + offset, length)
        return bytes(_DECODED.get(self.name, self._decode)[offset : offset + length])

    def read_nowait(self, offset: int, length: int) -> Buffer | None:
        file = _FILES.find(self.name)
        return None if file is None else file.read_nowait(len(self._head) + offset, length)


@lru_cache
def _boot() -> str:
    return system()[0]


def open_cells(source: StoredFile, path: Path, limits: Limits) -> ParquetCells:
    """The cells at a path of the file in a source, which is opened and verified. Raises the errors of sources."""
    if not source.is_verified:
        source.open()
    key = source.identity, path, limits.decoded, limits.window
    found = _CELLS.find(key)
    if found is None:
        made = ParquetCells(source, path, limits)
        found = made if source.identity is None else _CELLS.get(key, lambda: made)
    return found


def find_cells(source: StoredFile, path: Path, limits: Limits) -> ParquetCells | None:
    """The cells at a path of the file in a source, if this process has looked some up. Never waits."""
    return _CELLS.find((source.identity, path, limits.decoded, limits.window))
