"""The levels of a data page: which rows have a value, and where rows begin. They lie before the values."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from touchfs.core.errors import FormatError
from touchfs.core.extent import Buffer, Memory, Reads, drive
from touchfs.limits import too_large
from touchfs.tables.parquet.layout.levels import parse_hybrid, width_of
from touchfs.tables.parquet.layout.pages import Encoding, PageType, ParquetPage
from touchfs.tables.parquet.layout.row_group import UNCOMPRESSED
from touchfs.tables.parquet.layout.schema import ParquetLeaf

_LENGTH = struct.Struct("<I")
# Of a value or null in memory: its levels, offset and length
_VALUE_SIZE = 32
# Gets the number of a codec, the stored bytes and the size of what they decompress to. Raises FormatError.
Decompress = Callable[[int, Buffer, int], Buffer]


@dataclass(frozen=True, slots=True, eq=False)
class PageLevels:
    """The levels of a page. `values` is the offset of its first value: in the file, or in the decompressed page.

    `repetition` has a level for each value or null, None if all are 0. `valid` is True for values, None if all are.
    """

    repetition: NDArray[np.int64] | None
    valid: NDArray[np.bool_] | None
    values: int


@dataclass(frozen=True, slots=True)
class LevelReader:
    """Reads the levels of pages. `limit` is the most bytes that a page may have in memory."""

    decompress: Decompress
    limit: int

    def read(self, page: ParquetPage, leaf: ParquetLeaf, codec: int) -> Reads[PageLevels | None]:
        """The levels of a data page of a leaf; None if they have an encoding that no writer has used since 2014.

        A page of version 1 in a codec is decompressed as a whole. Raises FormatError.
        """
        self.check(page)
        is_old = (leaf.max_repetition and page.repetition_encoding != Encoding.RLE) or (
            leaf.max_definition and page.definition_encoding != Encoding.RLE
        )
        if page.type == PageType.DATA_V2 or (codec == UNCOMPRESSED and not is_old):
            return (yield from _read_levels(page, leaf, page.start, page.end))
        if is_old:
            return None
        self.check_decompressed(page)
        body = self.decompress(codec, (yield page.start, page.stored), page.size)
        try:
            return drive(_read_levels(page, leaf, 0, len(body)), Memory(body))
        except FormatError as error:
            error.offset = page.offset
            raise

    def check(self, page: ParquetPage) -> None:
        """Raise FormatError for a page that does not fit in memory."""
        self._check(page, max(page.size, page.stored, page.values * _VALUE_SIZE))

    def check_decompressed(self, page: ParquetPage) -> None:
        """Raise FormatError for a page that does not fit in memory both as it is stored and decompressed."""
        self._check(page, page.size + page.stored + page.values * _VALUE_SIZE)

    def _check(self, page: ParquetPage, needed: int) -> None:
        if needed > self.limit:
            raise FormatError(f"a Parquet page is not read: {too_large(self.limit)}", offset=page.offset)


def _read_levels(page: ParquetPage, leaf: ParquetLeaf, start: int, end: int) -> Reads[PageLevels]:
    """Read levels in a page whose bytes are from `start` to `end`."""
    found: list[NDArray[np.int64] | None] = []
    sizes = (page.repetition_size, page.definition_size)
    for largest, size in zip((leaf.max_repetition, leaf.max_definition), sizes, strict=True):
        if page.type == PageType.DATA and largest:
            if end - start < _LENGTH.size:
                raise FormatError("the levels of a Parquet page are cut off", offset=page.offset)
            (size,) = _LENGTH.unpack((yield start, _LENGTH.size))
            start += _LENGTH.size
        if size > end - start:
            raise FormatError("the levels of a Parquet page are cut off", offset=page.offset)
        found.append(parse_hybrid((yield start, size), width_of(largest), page.values) if largest else None)
        start += size
    repetition, definition = found
    valid = None if definition is None else definition == leaf.max_definition
    return PageLevels(repetition, None if valid is None or valid.all() else valid, start)
