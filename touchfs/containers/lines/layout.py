"""Find the lines of a JSONL file, and the JSON value in a line.

A line ends with a line feed or at the end of the file. This is Lhotse's definition; its index has every line, including
empty ones. The JSON value of a line excludes the line end (LF or CR LF), blanks, and the byte order mark that some
editors put before the first line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from touchfs.core.extent import Buffer

BOM = b"\xef\xbb\xbf"
_BLANKS = b" \t\r\n"
_LINE_FEED = ord("\n")


def line_offsets(blocks: Iterable[Buffer]) -> Iterator[NDArray[np.int64]]:
    """Yield the offsets at which lines begin, and at the end the file's size, from its bytes in blocks of any size."""
    start, last = 0, 0
    yield np.zeros(1, np.int64)
    for block in blocks:
        ends = np.flatnonzero(np.frombuffer(block, np.uint8) == _LINE_FEED)
        if len(ends):
            offsets = ends.astype(np.int64, copy=False)
            offsets += start + 1
            last = int(offsets[-1])
            yield offsets
        start += len(block)
    if last != start:
        yield np.array([start], np.int64)


def value_of(line: Buffer, offset: int) -> bytes:
    """Return the bytes of the value in a line that begins at `offset` of its file, as `value_span` finds it."""
    data = bytes(line)
    return (data if offset else data.rstrip(_BLANKS).removeprefix(BOM)).strip(_BLANKS)


def value_span(line: Buffer, offset: int = 0) -> tuple[int, int]:
    """Return the offset and length in bytes of the value in a line that begins at `offset` of its file; a blank line
    has length 0.
    """
    data = bytes(line).rstrip(_BLANKS)
    start = len(BOM) if offset == 0 and data.startswith(BOM) else 0
    value = data[start:].lstrip(_BLANKS)
    return offset + len(data) - len(value), len(value)
