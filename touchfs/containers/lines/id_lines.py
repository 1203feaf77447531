"""The values of a list of Kaldi's, `id value`, by the id at the start of each line. Lines may be in any order.

In memory are 32 bytes a line: its place, and a hash of its id. A line that is found is read again, so ids with equal
hashes are told apart.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from touchfs.containers.lines.reader import lines
from touchfs.core.errors import FormatError
from touchfs.core.names import hash_of
from touchfs.segments.formats.lines import LINE_MAX, shown
from touchfs.source.ranges import read_ranges
from touchfs.source.store import StoredFile

# A file's path has at most 4,096 bytes, so an id that becomes a name is shorter. Texts behind it may be long.
_HEAD_SIZE = 8192
_BLOCK_LINES = 1 << 12


class IdLines:
    """The lines of a file that are not blank."""

    def __init__(self, file: StoredFile) -> None:
        self._file = file
        spans = lines(file)
        hashes = np.fromiter(_hashes(file, spans), np.uint64, len(spans))
        order = np.argsort(hashes, kind="stable")
        self._hashes, self._spans = hashes[order], spans[order]

    def close(self) -> None:
        self._file.close()

    def find(self, name: str) -> str | None:
        """The value of an id; None if no line has it. The first line counts. Raises FormatError if it is not UTF-8."""
        encoded = name.encode()
        wanted = np.uint64(hash_of(encoded))  # an int would make all hashes floats first
        first, end = (int(np.searchsorted(self._hashes, wanted, side)) for side in ("left", "right"))
        for offset, size in self._spans[first:end].tolist():
            if _id_of(self._file.read(offset, min(size, _HEAD_SIZE))) != encoded:
                continue
            if size > LINE_MAX:
                raise FormatError(f"the line of {shown(name)} has over {LINE_MAX:,} bytes")
            return decode(self._file.read(offset, size)).strip()[len(name) :].strip()
        return None


def _hashes(file: StoredFile, spans: NDArray[np.int64]) -> Iterator[int]:
    for first in range(0, len(spans), _BLOCK_LINES):
        offsets, sizes = spans[first : first + _BLOCK_LINES].T
        for head in read_ranges(file, offsets, np.minimum(sizes, _HEAD_SIZE)):
            yield hash_of(_id_of(head))


def _id_of(line: bytes) -> bytes:
    return next(iter(line.split(None, 1)), b"")


def decode(line: bytes) -> str:
    """The text of a line. Raises FormatError if it is not UTF-8."""
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise FormatError("is not UTF-8: convert the file to UTF-8") from error
