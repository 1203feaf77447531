"""Compute the size of the decoded values of a page.

Values of a dictionary, and values that share prefixes, may take far more bytes than the page.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from touchfs.core.errors import FormatError
from touchfs.core.extent import Buffer, Reads
from touchfs.tables.parquet.layout.delta import parse_delta
from touchfs.tables.parquet.layout.levels import parse_hybrid
from touchfs.tables.parquet.layout.page_levels import LevelReader
from touchfs.tables.parquet.layout.pages import DICTIONARY_ENCODINGS, Encoding, PageType, ParquetPage
from touchfs.tables.parquet.layout.row_group import UNCOMPRESSED
from touchfs.tables.parquet.layout.schema import ParquetLeaf, PhysicalType

# Of a value or null in memory, for each level of lists and structs: levels, offsets, validity
_VALUE_SIZE = 8


def least_size(page: ParquetPage, leaf: ParquetLeaf) -> int:
    """Bytes that a page takes while it is decoded in any case: what it has, and its values, levels and nulls.

    The decoder copies texts and bytes, also those of a dictionary, and those in lists twice. It has the page meanwhile.
    """
    copies = 1 if leaf.type != PhysicalType.BYTE_ARRAY else 3 if leaf.max_repetition else 2
    return copies * page.size + page.values * (max(leaf.width, _VALUE_SIZE) + _VALUE_SIZE * leaf.max_definition)


def expands(page: ParquetPage, leaf: ParquetLeaf) -> bool:
    """True for a page whose values may take more than `least_size`."""
    is_repeated = page.encoding in (*DICTIONARY_ENCODINGS, Encoding.DELTA_BYTE_ARRAY)
    return page.is_data and leaf.type == PhysicalType.BYTE_ARRAY and is_repeated


def expanded_size(
    page: ParquetPage, leaf: ParquetLeaf, codec: int, lengths: NDArray[np.int64], levels: LevelReader
) -> Reads[int | None]:
    """Bytes that the values of a page of a leaf take, which `expands`; None if `LevelReader.read` knows no levels.

    `lengths` are those of the dictionary's values. Raises FormatError.
    """
    largest = int(lengths.max()) if len(lengths) else 0
    if page.encoding in DICTIONARY_ENCODINGS and page.values * largest <= levels.limit:
        return page.values * largest
    found = yield from levels.read(page, leaf, codec)
    if found is None:
        return None
    count = page.values if found.valid is None else int(found.valid.sum())
    data = yield from _read_values(page, codec, found.values, levels)
    if not len(data):
        return 0
    if page.encoding == Encoding.DELTA_BYTE_ARRAY:
        return int(parse_delta(data, count).sum()) + page.size
    indices = parse_hybrid(memoryview(data)[1:], data[0], count)
    if len(indices) and not int(indices.max()) < len(lengths):
        raise FormatError("a Parquet page has indices beyond its dictionary", offset=page.offset)
    return int(lengths[indices].sum())


def _read_values(page: ParquetPage, codec: int, start: int, levels: LevelReader) -> Reads[Buffer]:
    """The decompressed values of a page, which begin at `start` of what `LevelReader.read` looked at."""
    if codec == UNCOMPRESSED or not page.is_compressed:
        return (yield start, page.end - start)
    if page.type == PageType.DATA_V2:
        size = page.size - (start - page.start)
        return levels.decompress(codec, (yield start, page.end - start), size) if size else b""
    body = levels.decompress(codec, (yield page.start, page.stored), page.size)
    return memoryview(body)[start:]
