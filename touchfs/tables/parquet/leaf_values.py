"""The values of leaves of an open Parquet file: pyarrow decodes excerpts of it, each of some pages of one leaf."""

from __future__ import annotations

import base64
from collections.abc import Hashable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from touchfs.core.errors import FormatError
from touchfs.core.extent import drive
from touchfs.core.extras import load_pyarrow
from touchfs.limits import Limits, too_large
from touchfs.posix.bounded_cache import BoundedCache
from touchfs.tables.parquet.chunk_pages import ParquetPages
from touchfs.tables.parquet.codecs import decompress
from touchfs.tables.parquet.int96 import as_bytes, check_nanoseconds
from touchfs.tables.parquet.join_leaves import storage_of
from touchfs.tables.parquet.layout.decoded_size import expanded_size, expands, least_size
from touchfs.tables.parquet.layout.excerpt import build_excerpt, build_schema_file
from touchfs.tables.parquet.layout.footer import ParquetFooter
from touchfs.tables.parquet.layout.page_levels import LevelReader
from touchfs.tables.parquet.layout.page_table import PageTable
from touchfs.tables.parquet.layout.pages import PageType, ParquetPage, read_page
from touchfs.tables.parquet.layout.schema import ParquetLeaf, PhysicalType
from touchfs.tables.values.kept_values import KEPT_BYTES, NBYTES
from touchfs.tables.values.pyarrow_errors import pyarrow_errors

if TYPE_CHECKING:
    import pyarrow

    from touchfs.source.store import StoredFile

# Rows in more spans are decoded at once, and not kept: so are those of a column.
KEPT_SPANS, DECODED_BYTES = 4, 1 << 24
# Of all files of this process: the values of spans of pages.
_SPANS: BoundedCache[Hashable, pyarrow.Array] = BoundedCache(KEPT_BYTES, NBYTES)


class LeafValues:
    """Reads values of leaves. Safe for any number of threads.

    Raises FormatError, also for values that do not fit in memory, MissingExtraError, and the errors of the source.
    """

    def __init__(self, source: StoredFile, footer: ParquetFooter, pages: ParquetPages, limits: Limits) -> None:
        self._source = source
        self._footer = footer
        self._pages = pages
        self._limit = limits.decoded
        self._levels = LevelReader(decompress, limits.decoded)
        self._name: Hashable = source.identity or object()

    @cached_property
    def schema(self) -> pyarrow.Schema:
        """The Arrow schema of the file. Reads nothing."""
        arrow = load_pyarrow()
        import pyarrow.parquet

        with pyarrow_errors("a Parquet schema"):
            return pyarrow.parquet.read_schema(arrow.BufferReader(build_schema_file(self._footer)))

    def read(self, leaf: ParquetLeaf, group: int, first: int, count: int) -> pyarrow.Array:
        """The values of a leaf in rows of a row group, at least one, in the lists and structs that it is in.

        Other children of these structs are missing, and maps are lists of structs then. Extension types are their
        storage. Int96 timestamps that do not fit into nanoseconds are a FormatError, unless they are read as bytes.
        """
        table = self._pages.table(leaf, group)
        spans, parts = table.spans(first, count), []
        for some in _in_parts(table, spans) if len(spans) > KEPT_SPANS else [range(i, i + 1) for i in spans]:
            start = int(table.rows[some.start])
            values = self._decode(leaf, group, some) if len(some) > 1 else self._span(leaf, group, some)
            parts.append(values[max(first - start, 0) : first + count - start])
        return parts[0] if len(parts) == 1 else load_pyarrow().concat_arrays(parts)

    def _span(self, leaf: ParquetLeaf, group: int, span: range) -> pyarrow.Array:
        """The values of one span of pages, which are kept."""
        key = self._name, group, leaf.number, leaf.type, span.start
        return _SPANS.get(key, lambda: self._decode(leaf, group, span))

    def _decode(self, leaf: ParquetLeaf, group: int, spans: range) -> pyarrow.Array:
        """The values of spans of pages, one after the other."""
        chunk, table = self._pages.chunk(leaf, group), self._pages.table(leaf, group)
        start, end = int(table.offsets[spans.start]), int(table.offsets[spans.stop])
        rows = int(table.rows[spans.stop] - table.rows[spans.start])
        pages = [] if table.dictionary is None else [self._page(table.dictionary, int(table.offsets[0]))]
        while start < end:
            page = self._page(start, end)
            if page.is_data:
                pages.append(page)
            start = page.end
        if not pages or not pages[-1].is_data:
            raise FormatError("a Parquet page with data is missing", offset=end)
        self._check(pages, leaf, group)
        data = [(page, self._source.read(page.offset, page.end - page.offset)) for page in pages]
        with pyarrow_errors("a Parquet page", pages[-1].offset):
            from touchfs.tables.values.sound import check_structure

            excerpt = build_excerpt(self._footer, leaf, chunk.codec, rows, data, self._metadata(leaf))
            found = _decode_excerpt(excerpt, leaf.number - self._footer.schema.columns[leaf.column].leaves.start)
            check_structure(found)
            if leaf.type == PhysicalType.INT96:
                check_nanoseconds(self._decode(as_bytes(leaf), group, spans), leaf)
        if len(found) != rows:
            raise FormatError(f"Parquet pages have {len(found)} rows, not {rows}", offset=pages[-1].offset)
        return found

    def _metadata(self, leaf: ParquetLeaf) -> dict[bytes, bytes]:
        """The metadata from which pyarrow takes the type of a leaf's column. Parquet has no such type itself."""
        arrow, field = load_pyarrow(), self.schema.field(leaf.column)
        schema = arrow.schema([arrow.field(field.name, storage_of(field.type), field.nullable)])
        return {b"ARROW:schema": base64.b64encode(schema.serialize())}

    def _page(self, offset: int, end: int) -> ParquetPage:
        page = drive(read_page(offset, end), self._source)
        self._levels.check(page)
        return page

    def _check(self, pages: Sequence[ParquetPage], leaf: ParquetLeaf, group: int) -> None:
        """Raise FormatError for pages whose values do not fit in memory, or that do not belong together."""
        first = pages[0]
        # The excerpt has the stored bytes again.
        needed = sum(2 * page.stored + least_size(page, leaf) for page in pages)
        lengths = np.zeros(0, np.int64)
        for page in pages:
            if not page.is_data and page is not first:
                raise FormatError("a Parquet page of an unknown type", offset=page.offset)
            if needed <= self._limit and expands(page, leaf):
                if first.type == PageType.DICTIONARY and not len(lengths):
                    lengths = self._pages.dictionary_lengths(leaf, group, first)
                codec = self._pages.chunk(leaf, group).codec
                size = drive(expanded_size(page, leaf, codec, lengths, self._levels), self._source)
                if size is None:
                    raise FormatError("a Parquet page with levels of an old encoding is not read", offset=page.offset)
                needed += size
        if needed > self._limit:
            raise FormatError(f"a Parquet page is not read: {too_large(self._limit)}", offset=first.offset)


def _in_parts(table: PageTable, spans: range) -> Iterator[range]:
    """Spans in parts of about `DECODED_BYTES` of the file."""
    first = spans.start
    for i in spans:
        if i + 1 == spans.stop or table.offsets[i + 1] - table.offsets[first] >= DECODED_BYTES:
            yield range(first, i + 1)
            first = i + 1


def _decode_excerpt(data: bytes, leaf: int) -> pyarrow.Array:
    """The values of the leaf of this number in an excerpt."""
    import pyarrow.parquet

    file = pyarrow.parquet.ParquetFile(pyarrow.BufferReader(data), pre_buffer=False, page_checksum_verification=True)
    # Not `file.read_row_group`: names of columns may be ambiguous.
    reader = cast("Any", file.reader)
    found = reader.read_row_group(0, column_indices=[leaf], use_threads=False).column(0)
    return found.chunk(0) if found.num_chunks == 1 else found.combine_chunks()
