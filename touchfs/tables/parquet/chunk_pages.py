"""The pages of an open Parquet file: where they are, and where the cells in them are. What is found is kept."""

from __future__ import annotations

import zlib
from collections.abc import Hashable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from touchfs.core.errors import FormatError
from touchfs.core.extent import Content, Memory, Rope, drive
from touchfs.limits import Limits, too_large
from touchfs.posix.bounded_cache import BoundedCache
from touchfs.tables.parquet.codecs import decompress
from touchfs.tables.parquet.layout.cell_ranges import CellRanges, dictionary_ranges, may_have_ranges, page_ranges
from touchfs.tables.parquet.layout.footer import ParquetFooter
from touchfs.tables.parquet.layout.page_levels import LevelReader
from touchfs.tables.parquet.layout.page_table import PageTable, read_page_table
from touchfs.tables.parquet.layout.pages import DICTIONARY_ENCODINGS, Encoding, ParquetPage, read_page
from touchfs.tables.parquet.layout.plain_values import plain_ranges
from touchfs.tables.parquet.layout.row_group import ParquetChunk, RowGroup
from touchfs.tables.parquet.layout.schema import ParquetLeaf
from touchfs.tables.values.kept_values import KEPT_BYTES, NBYTES

if TYPE_CHECKING:
    from touchfs.source.store import StoredFile

# Of a row of `CellRanges`
_RANGE_SIZE = 17

# Of all files of this process: row groups by the file and their number, tables of pages also by the leaf.
_GROUPS: BoundedCache[Hashable, RowGroup] = BoundedCache(KEPT_BYTES, NBYTES)
_TABLES: BoundedCache[Hashable, PageTable] = BoundedCache(KEPT_BYTES, NBYTES)
# Also of all files: by the file, the row group, the leaf and the number of the page, −1 for the dictionary.
_RANGES: BoundedCache[Hashable, CellRanges] = BoundedCache(KEPT_BYTES, NBYTES)


class ParquetPages:
    """The pages of an open file. Safe for any number of threads. Raises FormatError, and the errors of the source."""

    def __init__(self, source: StoredFile, footer: ParquetFooter, limits: Limits) -> None:
        self._source = source
        self._footer = footer
        self._limit = limits.decoded
        self._levels = LevelReader(decompress, limits.decoded)
        self._name: Hashable = source.identity or object()

    def rows(self, group: int) -> int:
        """The number of rows of a row group."""
        return int(self._footer.starts[group + 1] - self._footer.starts[group])

    def chunk(self, leaf: ParquetLeaf, group: int) -> ParquetChunk:
        """The chunk of a leaf in a row group."""
        return _GROUPS.get((self._name, group), lambda: self._footer.group(group)).chunks[leaf.number]

    def table(self, leaf: ParquetLeaf, group: int) -> PageTable:
        """The pages of a chunk."""

        def read() -> PageTable:
            plan = read_page_table(self.chunk(leaf, group), leaf, self.rows(group), self._levels)
            return drive(plan, self._source)

        return _TABLES.get((self._name, group, leaf.number), read)

    def ranges(self, leaf: ParquetLeaf, group: int, first: int, count: int) -> CellRanges | None:
        """The byte ranges of the cells of some rows of a row group; None if some cells are not ranges of the file."""
        chunk = self.chunk(leaf, group)
        self._check_rows(count)
        if not may_have_ranges(chunk, leaf):
            return None
        table = self.table(leaf, group)
        spans, parts = table.spans(first, count), []
        for number in spans:
            part = self._page_ranges(leaf, group, table, number)
            if part is None:
                return None
            start = int(table.rows[number])
            parts.append(part[max(first - start, 0) : first + count - start])
        return CellRanges.joined(parts)

    def validity(self, leaf: ParquetLeaf, group: int, *, full: bool) -> NDArray[np.bool_] | None:
        """Find the rows of a row group that have a value: bool[rows]. None if only pages say it and `full` is False."""
        chunk, rows = self.chunk(leaf, group), self.rows(group)
        self._check_rows(rows)
        if leaf.max_definition == 0 or chunk.nulls == 0:
            return np.ones(rows, np.bool_)
        if chunk.nulls == chunk.values == rows:
            return np.zeros(rows, np.bool_)
        if not full:
            return None
        table, parts = self.table(leaf, group), [np.zeros(0, np.bool_)]
        for number in table.spans(0, rows):
            page = self._flat_page(table, number)
            levels = drive(self._levels.read(page, leaf, chunk.codec), self._source)
            if levels is None:
                return None
            parts.append(np.ones(page.values, np.bool_) if levels.valid is None else levels.valid)
        return np.concatenate(parts)

    def items(self, leaf: ParquetLeaf, group: int) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
        """The row and the number in its list of each value, not null, of a leaf in lists, of a row group.

        None if the levels have an old encoding. Pages of version 1 in a codec are decompressed.
        """
        chunk, table = self.chunk(leaf, group), self.table(leaf, group)
        self._check_rows(chunk.values)
        repetition, valid = [np.zeros(0, np.int64)], [np.zeros(0, np.bool_)]
        position, end = int(table.offsets[0]), int(table.offsets[-1])
        while position < end:
            page = drive(read_page(position, end), self._source)
            position = page.end
            if page.is_data:
                levels = drive(self._levels.read(page, leaf, chunk.codec), self._source)
                if levels is None or levels.repetition is None:
                    return None
                repetition.append(levels.repetition)
                valid.append(np.ones(page.values, np.bool_) if levels.valid is None else levels.valid)
        begins, has_value = np.concatenate(repetition) == 0, np.concatenate(valid)
        row = np.cumsum(begins) - 1
        if len(row) and (not begins[0] or row[-1] + 1 != self.rows(group)):
            raise FormatError("the pages of a Parquet column have another number of rows", offset=chunk.start)
        item = np.arange(len(row)) - np.flatnonzero(begins)[row]
        return row[has_value], item[has_value]

    def decoded_cells(
        self, leaf: ParquetLeaf, group: int, number: int, least: int
    ) -> tuple[CellRanges, memoryview, bool] | None:
        """The cells of a page of a leaf in no list, if that or its dictionary has over `least` decompressed bytes.

        Where they are in these bytes; the bytes, of which no other copy is made; whether other pages share them, as
        those of a dictionary. None for smaller pages and other encodings.
        """
        table, codec = self.table(leaf, group), self.chunk(leaf, group).codec
        page, dictionary = self._flat_page(table, number), None
        if table.dictionary is not None and page.encoding in DICTIONARY_ENCODINGS:
            dictionary = drive(read_page(table.dictionary, int(table.offsets[0])), self._source)
        is_known = dictionary is not None or page.encoding == Encoding.PLAIN
        if not is_known or (page if dictionary is None else dictionary).size <= least:
            return None
        data, values = self._decompressed(page, codec)
        places = None
        if dictionary is not None:
            _, values = self._decompressed(dictionary, codec)
            places = drive(dictionary_ranges(_in_memory(dictionary), leaf, self._levels), Memory(values))
        found = drive(page_ranges(_in_memory(page), leaf, places, self._levels), data)
        if found is None:
            return None
        if dictionary is None:
            found.offsets[found.valid] -= data.size - len(values)
        return found, values, dictionary is not None and len(table.rows) > 2  # else the only page

    def _decompressed(self, page: ParquetPage, codec: int) -> tuple[Content, memoryview]:
        """The bytes of a page decompressed, and those after the levels that version 2 stores as they are."""
        self._levels.check_decompressed(page)
        stored = memoryview(self._source.read(page.start, page.stored))
        if page.crc is not None and zlib.crc32(stored) != page.crc % 2**32:
            raise FormatError("a Parquet page differs from its checksum", offset=page.offset)
        levels = page.definition_size + page.repetition_size
        values = stored[levels:]
        if page.is_compressed and page.size > levels:
            values = memoryview(decompress(codec, values, page.size - levels))
        if len(values) != page.size - levels:
            raise FormatError("a Parquet page that is not compressed has two sizes", offset=page.offset)
        return Rope((Memory(stored[:levels]), Memory(values))), values

    def dictionary_lengths(self, leaf: ParquetLeaf, group: int, page: ParquetPage) -> NDArray[np.int64]:
        """The lengths of the values of the dictionary page of a chunk."""

        def read() -> CellRanges:
            data = self._source.read(page.start, page.stored)
            values = decompress(self.chunk(leaf, group).codec, data, page.size)
            starts, lengths = drive(plain_ranges(0, len(values), page.values, leaf.width), Memory(values))
            return CellRanges(starts, lengths, np.ones(len(starts), np.bool_))

        return _RANGES.get((self._name, group, leaf.number, -2), read).lengths

    def _page_ranges(self, leaf: ParquetLeaf, group: int, table: PageTable, number: int) -> CellRanges | None:
        key = self._name, group, leaf.number, number
        found = _RANGES.find(key)
        if found is None:
            page = self._flat_page(table, number)
            dictionary = self._dictionary(leaf, group, table)
            found = drive(page_ranges(page, leaf, dictionary, self._levels), self._source)
            if found is not None:
                _RANGES.keep(key, found)
        return found

    def _dictionary(self, leaf: ParquetLeaf, group: int, table: PageTable) -> CellRanges | None:
        if table.dictionary is None:
            return None
        start, end = table.dictionary, int(table.offsets[0])

        def read() -> CellRanges:
            page = drive(read_page(start, end), self._source)
            return drive(dictionary_ranges(page, leaf, self._levels), self._source)

        return _RANGES.get((self._name, group, leaf.number, -1), read)

    def _flat_page(self, table: PageTable, number: int) -> ParquetPage:
        """The only page of a span of a leaf in no list."""
        offset, end = int(table.offsets[number]), int(table.offsets[number + 1])
        page = drive(read_page(offset, end), self._source)
        if not page.is_data or page.values != table.rows[number + 1] - table.rows[number]:
            raise FormatError("a Parquet page is not the one that the footer or the offset index say", offset=offset)
        return page

    def _check_rows(self, count: int) -> None:
        if count * _RANGE_SIZE > self._limit:
            raise FormatError(f"places of {count:,} cells are not read: {too_large(self._limit)}")


def _in_memory(page: ParquetPage) -> ParquetPage:
    """A page as it is when decompressed, without its header."""
    return replace(page, offset=0, header_size=0, stored=page.size, is_compressed=False)
