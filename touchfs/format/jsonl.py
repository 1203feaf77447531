"""Where the lines of a JSONL file are.

A line ends with a line feed or with the file, and begins where the one before it ends: so says Lhotse, whose index has
every line, empty ones too. What is a JSON value in a line is another question: not the line's end (CR LF as well), nor
blanks, nor the byte order mark that some editors put before the first line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from touchfs.extent import Buffer

BOM = b"\xef\xbb\xbf"
_BLANKS = b" \t\r\n"
_LINE_FEED = ord("\n")


def line_offsets(blocks: Iterable[Buffer]) -> Iterator[NDArray[np.int64]]:
    """From a file's bytes in blocks of any size: where its lines begin, and at the end its size. Nothing is kept."""
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


def value_span(line: Buffer, offset: int = 0) -> tuple[int, int]:
    """Offset and length of the value in a line that begins at `offset` of its file. A blank line has length 0."""
    data = bytes(line).rstrip(_BLANKS)
    start = len(BOM) if offset == 0 and data.startswith(BOM) else 0
    value = data[start:].lstrip(_BLANKS)
    return offset + len(data) - len(value), len(value)
