"""The pages of a column chunk and their rows: by its offset index, else by the header of each page.

A row of lists may go on in the next page, where there is no offset index and pages are of version 1. So pages are
counted in *spans* that begin with a row: one page, or some.

Source: github.com/apache/parquet-format, PageIndex.md
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from touchfs.core.errors import FormatError
from touchfs.core.extent import Reads
from touchfs.tables.parquet.layout.page_levels import LevelReader
from touchfs.tables.parquet.layout.pages import PageType, read_page
from touchfs.tables.parquet.layout.row_group import ParquetChunk
from touchfs.tables.parquet.layout.schema import ParquetLeaf
from touchfs.tables.parquet.layout.thrift import STRUCT, CompactReader

# That of 4 million pages has this size.
INDEX_MAX = 1 << 26


@dataclass(frozen=True, slots=True, eq=False)
class PageTable:
    """The spans of pages of a chunk: the offset of the first header of each and its first row in the row group.

    Both have one element more: the end of the chunk, and the number of its rows. The pages of a span are one after the
    other, up to the next span at most. `dictionary` is the offset of the dictionary page, None without one.
    """

    offsets: NDArray[np.int64]
    rows: NDArray[np.int64]
    dictionary: int | None

    @property
    def nbytes(self) -> int:
        """The bytes of memory that it takes."""
        return self.offsets.nbytes + self.rows.nbytes

    def spans(self, first: int, count: int) -> range:
        """The numbers of the spans that have `count` rows of the row group from `first` on."""
        if count <= 0:
            return range(0)
        return range(
            int(self.rows.searchsorted(first, "right")) - 1, int(self.rows.searchsorted(first + count, "left"))
        )


def read_page_table(chunk: ParquetChunk, leaf: ParquetLeaf, rows: int, levels: LevelReader) -> Reads[PageTable]:
    """Find the pages of a chunk of a row group of `rows` rows. Raises FormatError."""
    if chunk.index is not None:
        return (yield from _by_index(chunk, *chunk.index, rows))
    return (yield from _by_headers(chunk, leaf, rows, levels))


def _by_index(chunk: ParquetChunk, offset: int, size: int, rows: int) -> Reads[PageTable]:
    if size > INDEX_MAX:
        raise FormatError(f"an offset index of {size:,} bytes, the most is {INDEX_MAX:,}", offset=offset)
    reader = CompactReader((yield offset, size), offset)
    offsets, firsts = array("q"), array("q")
    for number, kind in reader.fields():
        if number != 1:  # page_locations
            reader.skip(kind)
            continue
        for _ in range(reader.elements(kind, STRUCT)):
            place = [-1, -1]
            for inner, value in reader.fields():
                if inner in (1, 3):  # offset, first_row_index
                    place[inner == 3] = reader.number(value)
                else:
                    reader.skip(value)
            offsets.append(place[0])
            firsts.append(place[1])
    end = chunk.start + chunk.size
    table_offsets, table_rows = _ended(offsets, end), _ended(firsts, rows)
    if not len(offsets) and rows:
        raise FormatError("an offset index without pages", offset=offset)
    fits = (np.diff(table_offsets) > 0).all() and (np.diff(table_rows) >= 0).all()
    if not fits or table_offsets[0] < chunk.start or table_rows[0] != 0:
        raise FormatError("an offset index with pages out of order, or outside their column", offset=offset)
    has_dictionary = len(offsets) > 0 and table_offsets[0] > chunk.start
    return PageTable(table_offsets, table_rows, chunk.start if has_dictionary else None)


def _by_headers(chunk: ParquetChunk, leaf: ParquetLeaf, rows: int, levels: LevelReader) -> Reads[PageTable]:
    position, end = chunk.start, chunk.start + chunk.size
    offsets, firsts = array("q"), array("q")
    dictionary: int | None = None
    values = row = 0
    are_known = True
    while values < chunk.values:
        page = yield from read_page(position, end)
        if page.type == PageType.DICTIONARY and dictionary is None and not offsets:
            dictionary = position
        elif page.is_data:
            starts = page.values if leaf.max_repetition == 0 else page.rows
            begins = True
            if starts is None and are_known:
                found = yield from levels.read(page, leaf, chunk.codec)
                are_known = found is not None and found.repetition is not None
                if found is not None and found.repetition is not None:
                    starts = int((found.repetition == 0).sum())
                    begins = not page.values or found.repetition[0] == 0
            # Where rows begin may be unknown: then all pages are one span.
            if not offsets or (begins and are_known):
                offsets.append(position)
                firsts.append(row)
            row += starts or 0
            values += page.values
        elif page.type != PageType.INDEX:
            raise FormatError(f"a Parquet page of an unknown type {page.type}", offset=position)
        position = page.end
    if values != chunk.values or (are_known and row != rows):
        raise FormatError("the pages of a Parquet column have another number of values", offset=chunk.start)
    if not are_known:
        del offsets[1:], firsts[1:]
    return PageTable(_ended(offsets, position), _ended(firsts, rows), dictionary)


def _ended(numbers: array[int], end: int) -> NDArray[np.int64]:
    return np.append(np.frombuffer(numbers, np.int64), end)
