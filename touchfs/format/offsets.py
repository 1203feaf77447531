"""Offset indexes: where each sample of a file begins, as bare 64-bit numbers, and nothing that says of which file.

Lhotse, Megatron-Energon and NeMo all write them beside the data as `<its name>.idx`. They agree on the numbers (`<u8`,
of a tar the first header block of a sample, extension headers included) and on little else:

    Lhotse      a line of JSONL; of a tar, every second member (data, metadata). Then the size of the file, or of what
                was read of it: 10240 bytes less where tar's end marker straddles two of its records.
    Energon     a run of members with the same key, up to the first dot. Then the end of the last member.
    NeMo        a run of members with the same stem, up to the last dot, directories aside. Then the size of the file;
                from older tools nothing, or where the zero blocks at the end begin.

So of a tar the last number is never believed, and which of them wrote the others is told by the tar's first members.
What is written are the bytes that Lhotse writes, but always with the true size, which all of them can read.

Source: lhotse/indexing.py, Megatron-Energon's itar.py, NeMo's nemo/collections/common/data/lhotse/indexed_adapters.py.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from touchfs.errors import FormatError
from touchfs.extent import Buffer

Offsets = NDArray[np.int64]

OFFSET = np.dtype("<u8")

# What else is called .idx or lies in its place, by how it begins
_STRANGERS = (
    (b"MMIDIDX\0", "MMIDIDX"),  # the index of a .bin
    (b"TNTIDX\0\0", "TNTIDX"),  # the same before 2023
    (b"IDXPACK", "IDXPACK"),  # many offset indexes in one file
    (b"SQLite format 3\0", "SQLite"),  # Energon's or ratarmount's
    (b"JIDX0001", "JIDX"),  # Energon's joined datasets
    (b"ARROW1\0\0", "Arrow"),
)
_DALI = re.compile(rb"v1\.[0-9]+ [0-9]")
_KEY = re.compile(r"((?:.*/)?[^./]+)\.[^/]*", re.DOTALL)
_PRIVATE = re.compile(r"__[^/]*__(?:/|$)")
# How many bytes `find_stranger` wants to see
MAGIC_SIZE = 16


def find_stranger(head: Buffer) -> str | None:
    """The name of an index that begins like this and is not made of bare offsets."""
    start = bytes(head[:MAGIC_SIZE])
    if _DALI.match(start):
        return "DALI"
    return next((name for magic, name in _STRANGERS if start.startswith(magic)), None)


def parse(data: Buffer, size: int) -> Offsets:
    """All the numbers, whatever the last one means, of an index of a file of `size` bytes."""
    if (name := find_stranger(data)) is not None:
        raise FormatError(f"not an index of bare offsets but of the kind {name}", offset=0)
    if len(data) == 0 or len(data) % OFFSET.itemsize:
        raise FormatError(f"an index of {len(data)} bytes is not made of 64-bit offsets", offset=len(data))
    stored = np.frombuffer(data, OFFSET)
    if (place := _first(stored[1:] < stored[:-1])) is not None:
        _refuse(f"offset {stored[place + 1]} comes after {stored[place]}", place + 1)
    if stored[-1] > size:
        place = int(np.searchsorted(stored, np.uint64(size), "right"))
        _refuse(f"offset {stored[place]} is past the end of a file of {size} bytes", place)
    return stored.astype(np.int64)


def parse_lines(data: Buffer, size: int) -> Offsets:
    """Of JSONL, where there is no doubt: the beginning of each line, and then the size."""
    offsets = parse(data, size)
    if offsets[-1] != size:
        _refuse(f"made for a file of {offsets[-1]} bytes, this has {size}", len(offsets) - 1)
    if offsets[0] != 0:
        _refuse("the first line does not begin at byte 0", 0)
    if (place := _first(offsets[1:] == offsets[:-1])) is not None:
        _refuse("a line without any bytes", place)
    return offsets


def build(starts: Iterable[int] | Offsets, size: int) -> bytes:
    """The index of samples that begin there, in a file of `size` bytes."""
    offsets = np.append(np.fromiter(starts, np.int64), np.int64(size))
    if (place := _first((offsets[1:] < offsets[:-1]) | (offsets[:-1] < 0))) is not None:
        _refuse(f"offset {offsets[place]} cannot be followed by {offsets[place + 1]}", place)
    return offsets.astype(OFFSET).tobytes()


def build_pairs(header_offsets: Iterable[int] | Offsets, size: int) -> bytes:
    """The index of a tar with two members a sample, of which each member's `header_offset` is given."""
    offsets = np.fromiter(header_offsets, np.int64)
    if len(offsets) % 2:
        raise FormatError(f"a tar of {len(offsets)} members has not two a sample", offset=int(offsets[-1]))
    return build(offsets[::2], size)


class Grouping(enum.Enum):
    """What one offset of a tar's index stands for."""

    PAIRS = "pairs"
    RUNS = "runs"
    MEMBERS = "members"


# Of a member: its name, where its first header is, whether it is a file
Start = tuple[str, int, bool]


def find_grouping(offsets: Offsets, members: Sequence[Start], end: int | None = None) -> Grouping | None:
    """How an index groups the members that a tar begins with; None if these are not its offsets, or make no sense.

    `end` is where the last member ends when these are all of them. What fits first counts, so a tar of pairs is PAIRS
    whoever made its index; of a single member all but PAIRS is true.
    """
    if end is None:
        members = members[: len(members) & ~1]  # the last may be half a pair
    for grouping, starts in _groupings(members):
        known = np.array(starts, np.int64)
        if np.array_equal(offsets[: len(known)], known) and (end is None or (offsets[len(known) :] >= end).all()):
            return grouping
    return None


def _groupings(members: Sequence[Start]) -> Iterator[tuple[Grouping, list[int]]]:
    names = [name for name, _, _ in members]
    if len(members) % 2 == 0 and all(_stem(a) == _stem(b) for a, b in zip(names[::2], names[1::2], strict=True)):
        yield Grouping.PAIRS, [offset for _, offset, _ in members[::2]]
    files = [(name, offset) for name, offset, is_file in members if is_file]
    for key in (_key, _base_stem):
        keyed = ((key(name), offset) for name, offset in files)
        runs = groupby((pair for pair in keyed if pair[0]), key=itemgetter(0))
        yield Grouping.RUNS, [next(run)[1] for _, run in runs]
    yield Grouping.MEMBERS, [offset for _, offset in files]


def _stem(name: str) -> str:
    """Lhotse's: up to the last dot."""
    directory, slash, base = name.rpartition("/")
    return directory + slash + _base_stem(base)


def _base_stem(name: str) -> str:
    """NeMo's: the same without directories. A dot in front is no such dot."""
    base = name.rpartition("/")[2]
    dot = base.rfind(".")
    return base[:dot] if dot > 0 else base


def _key(name: str) -> str:
    """WebDataset's and Energon's: up to the first dot of what is behind the directories. Empty: not in a sample."""
    found = None if _PRIVATE.match(name) else _KEY.fullmatch(name)
    return found[1] if found else ""


def bounds(offsets: Offsets, end: int) -> Offsets:
    """N+1 numbers of N samples in a tar whose last member ends at `end`, whatever the index has as its last."""
    return np.append(offsets[offsets < end], np.int64(end))


def _first(found: NDArray[np.bool_]) -> int | None:
    return int(found.argmax()) if found.any() else None


def _refuse(problem: str, place: int) -> NoReturn:
    raise FormatError(problem, offset=place * OFFSET.itemsize)
