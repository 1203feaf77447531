"""The ranges of a file that hold cells: plain values of pages that are not compressed, or of their dictionary."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from touchfs.core.errors import FormatError
from touchfs.core.extent import Reads
from touchfs.tables.parquet.layout.levels import parse_hybrid
from touchfs.tables.parquet.layout.page_levels import LevelReader
from touchfs.tables.parquet.layout.pages import DICTIONARY_ENCODINGS, Encoding, PageType, ParquetPage
from touchfs.tables.parquet.layout.plain_values import plain_ranges
from touchfs.tables.parquet.layout.row_group import UNCOMPRESSED, ParquetChunk
from touchfs.tables.parquet.layout.schema import ParquetLeaf, PhysicalType


@dataclass(frozen=True, slots=True, eq=False)
class CellRanges:
    """The byte ranges in the file of the cells of some rows. An element of each array is for a row.

    `offsets` are bytes of the file, `lengths` are in bytes. Both are 0 where `valid` is False: the cell, or a struct
    that it is in, is null.
    """

    offsets: NDArray[np.int64]
    lengths: NDArray[np.int64]
    valid: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.valid)

    def __getitem__(self, rows: slice) -> CellRanges:
        return CellRanges(self.offsets[rows], self.lengths[rows], self.valid[rows])

    @property
    def nbytes(self) -> int:
        """The bytes of memory that the arrays take."""
        return self.offsets.nbytes + self.lengths.nbytes + self.valid.nbytes

    @classmethod
    def joined(cls, parts: list[CellRanges]) -> CellRanges:
        """The ranges of rows of several parts, one after the other."""
        return cls(
            np.concatenate([np.zeros(0, np.int64), *(part.offsets for part in parts)]),
            np.concatenate([np.zeros(0, np.int64), *(part.lengths for part in parts)]),
            np.concatenate([np.zeros(0, np.bool_), *(part.valid for part in parts)]),
        )


def may_have_ranges(chunk: ParquetChunk, leaf: ParquetLeaf) -> bool:
    """False if values of a chunk are certainly no ranges of the file: compressed, in lists, or booleans."""
    return chunk.codec == UNCOMPRESSED and leaf.max_repetition == 0 and leaf.type != PhysicalType.BOOLEAN


def dictionary_ranges(page: ParquetPage, leaf: ParquetLeaf, levels: LevelReader) -> Reads[CellRanges]:
    """Find the byte ranges of the values of a dictionary page that is not compressed. Raises FormatError."""
    levels.check(page)
    if page.type != PageType.DICTIONARY or page.encoding not in (Encoding.PLAIN, Encoding.PLAIN_DICTIONARY):
        raise FormatError("another Parquet page where a dictionary should be", offset=page.offset)
    starts, lengths = yield from plain_ranges(page.start, page.stored, page.values, leaf.width)
    return CellRanges(starts, lengths, np.ones(page.values, np.bool_))


def page_ranges(
    page: ParquetPage, leaf: ParquetLeaf, dictionary: CellRanges | None, levels: LevelReader
) -> Reads[CellRanges | None]:
    """Find the byte ranges of the cells of a data page; None if the page is neither plain nor of a dictionary.

    The page is of a chunk that `may_have_ranges`. Raises FormatError.
    """
    has_indices = page.encoding in DICTIONARY_ENCODINGS
    if page.encoding != Encoding.PLAIN and not has_indices:
        return None
    found = yield from levels.read(page, leaf, UNCOMPRESSED)
    if found is None:
        return None
    valid = np.ones(page.values, np.bool_) if found.valid is None else found.valid
    count, size = int(valid.sum()), page.end - found.values
    if has_indices:
        if dictionary is None or (count and not size):
            raise FormatError("a Parquet page has indices into a dictionary that is not there", offset=page.offset)
        data = memoryview((yield found.values, size))
        indices = parse_hybrid(data[1:], data[0] if size else 0, count)
        if count and not 0 <= int(indices.min()) <= int(indices.max()) < len(dictionary):
            raise FormatError("a Parquet page has indices beyond its dictionary", offset=page.offset)
        starts, lengths = dictionary.offsets[indices], dictionary.lengths[indices]
    else:
        starts, lengths = yield from plain_ranges(found.values, size, count, leaf.width)
    made = CellRanges(np.zeros(page.values, np.int64), np.zeros(page.values, np.int64), valid)
    made.offsets[valid], made.lengths[valid] = starts, lengths
    return made
