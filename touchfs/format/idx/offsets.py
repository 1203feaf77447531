"""Offset indexes: the offset of each sample of a file as bare 64-bit numbers, without a header.

Lhotse, Megatron-Energon and NeMo all write them beside the data as `<its name>.idx`. They agree on the numbers (`<u8`;
in a tar, the offset of a sample's first header block, including extension headers) and on little else:

    Lhotse      a line of JSONL; in a tar, every second member (data, metadata). Then the size of the file, or of the
                part that was read: 10240 bytes less if tar's end marker straddles two of its records.
    Energon     consecutive members with the same key, up to the first dot. Then the end of the last member.
    NeMo        consecutive members with the same stem, up to the last dot, without directories. Then the size of the
                file; from older tools nothing, or the start of the zero blocks at the end.

So the last number of a tar's index is not trusted, and the tar's own members decide which tool's rule the others follow
(`touchfs.containers.tar.layout.grouping`). The index written here is Lhotse's, but always with the true size, which all
of them can read.

Source: lhotse/indexing.py, Megatron-Energon's itar.py, NeMo's nemo/collections/common/data/lhotse/indexed_adapters.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from touchfs.core.errors import FormatError
from touchfs.core.extent import Buffer

Offsets = NDArray[np.int64]

OFFSET = np.dtype("<u8")

# Other formats that are named .idx or are at the same path, by their first bytes
_FOREIGN = (
    (b"MMIDIDX\0", "MMIDIDX"),  # the index of a .bin
    (b"TNTIDX\0\0", "TNTIDX"),  # the same before 2023
    (b"IDXPACK", "IDXPACK"),  # many offset indexes in one file
    (b"SQLite format 3\0", "SQLite"),  # Energon's or ratarmount's
    (b"JIDX0001", "JIDX"),  # Energon's joined datasets
    (b"ARROW1\0\0", "Arrow"),
)
_DALI = re.compile(rb"v1\.[0-9]+ [0-9]")
# Number of bytes that `foreign_format` needs
MAGIC_SIZE = 16


def foreign_format(head: Buffer) -> str | None:
    """Return the name of the format of an index that begins like this; None if it may be bare offsets."""
    start = bytes(head[:MAGIC_SIZE])
    if _DALI.match(start):
        return "DALI"
    return next((name for magic, name in _FOREIGN if start.startswith(magic)), None)


def parse(data: Buffer, size: int) -> Offsets:
    """Return all numbers of an index of a file of `size` bytes; the meaning of the last one depends on the writer.

    Raises FormatError if they are not ascending offsets in the file.
    """
    if (name := foreign_format(data)) is not None:
        raise FormatError(f"not an index of bare offsets, but of the format {name}", offset=0)
    if len(data) == 0 or len(data) % OFFSET.itemsize:
        raise FormatError(f"an index of {len(data)} bytes is not made of 64-bit offsets", offset=len(data))
    stored = np.frombuffer(data, OFFSET)
    if (place := _first(stored[1:] < stored[:-1])) is not None:
        _refuse(f"offset {stored[place + 1]} comes after {stored[place]}", place + 1)
    if stored[-1] > size:
        place = int(np.searchsorted(stored, np.uint64(size), "right"))
        _refuse(f"offset {stored[place]} is past the end of a file of {size} bytes", place)
    return stored.astype(np.int64)


def build(starts: Iterable[int] | Offsets, size: int) -> bytes:
    """Return the index of samples that begin at `starts` in a file of `size` bytes. Raises FormatError."""
    offsets = np.append(np.fromiter(starts, np.int64), np.int64(size))
    if (place := _first((offsets[1:] < offsets[:-1]) | (offsets[:-1] < 0))) is not None:
        _refuse(f"offset {offsets[place]} cannot be followed by {offsets[place + 1]}", place)
    return offsets.astype(OFFSET).tobytes()


def _first(found: NDArray[np.bool_]) -> int | None:
    return int(found.argmax()) if found.any() else None


def _refuse(problem: str, place: int) -> NoReturn:
    raise FormatError(problem, offset=place * OFFSET.itemsize)
