"""Limit the memory that values of dictionaries take: a small Parquet file may repeat a large value without end."""

from __future__ import annotations

from collections.abc import Collection

from touchfs.core.errors import FormatError
from touchfs.core.extent import Memory, Source, drive
from touchfs.limits import Limits, too_large
from touchfs.tables.parquet.codecs import decompress
from touchfs.tables.parquet.layout.footer import ParquetFooter
from touchfs.tables.parquet.layout.pages import PageType, read_page
from touchfs.tables.parquet.layout.plain_values import plain_ranges
from touchfs.tables.parquet.layout.row_group import ParquetChunk
from touchfs.tables.parquet.layout.schema import PhysicalType

# Rows that are read at once may take this part of `Limits.decoded`: they are copied when types change.
_PART = 8


def rows_that_fit(
    source: Source, footer: ParquetFooter, group: int, columns: Collection[int], rows_max: int, limits: Limits
) -> int:
    """Return how many rows of a row group may be decoded at once, at least 1 and at most `rows_max`.

    `columns` are the numbers of the columns that are read. Raises FormatError for a damaged dictionary.
    """
    budget = limits.decoded // _PART
    chunks = footer.group(group).chunks
    rows = max(int(footer.starts[group + 1] - footer.starts[group]), 1)
    row_size = 1
    for leaf in footer.schema.leaves:
        if leaf.type == PhysicalType.BYTE_ARRAY and leaf.column in columns:
            chunk = chunks[leaf.number]
            values = -(-chunk.values // rows)  # of a row, on average
            row_size += values * _largest_value(source, chunk, budget // rows_max, limits.decoded)
    return min(max(budget // row_size, 1), rows_max)


def _largest_value(source: Source, chunk: ParquetChunk, enough: int, limit: int) -> int:
    """At most the bytes of a value in the dictionary of a chunk, 0 without one. Below `enough` nothing is looked at."""
    if not chunk.values:
        return 0
    page = drive(read_page(chunk.start, chunk.start + chunk.size), source)
    if page.type != PageType.DICTIONARY or page.size <= enough:
        return page.size if page.type == PageType.DICTIONARY else 0
    if page.size > limit:
        raise FormatError(f"a dictionary of a Parquet column: {too_large(limit)}", offset=page.offset)
    data = decompress(chunk.codec, source.read(page.start, page.stored), page.size)
    _, lengths = drive(plain_ranges(0, len(data), page.values, 0), Memory(data))
    return int(lengths.max(initial=0))
