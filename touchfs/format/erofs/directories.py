"""The blocks of directories: entries in the order of their names, and behind all entries of a block their names.

All directories of a subtree are built at once, as arrays.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from touchfs.core.errors import FormatError
from touchfs.format.erofs.layout import BLOCK, DIRECTORY, DIRENT, NAME_MAX

Numbers = NDArray[np.int64]
_DOT, _SLASH = ord("."), ord("/")


@dataclass(frozen=True, slots=True, eq=False)
class EntryNames:
    """Names of entries: number i is `data[starts[i] : starts[i] + sizes[i]]`."""

    data: NDArray[np.uint8]
    starts: Numbers
    sizes: Numbers

    @classmethod
    def of(cls, names: list[bytes]) -> EntryNames:
        sizes = np.fromiter(map(len, names), np.int64, len(names))
        return cls(np.frombuffer(b"".join(names), np.uint8), np.cumsum(sizes) - sizes, sizes)

    def take(self, places: Numbers) -> EntryNames:
        return EntryNames(self.data, self.starts[places], self.sizes[places])


@dataclass(frozen=True, slots=True, eq=False)
class DirectoryEntries:
    """The entries of directories, those of a directory together and in the order of their names. `counts` has the
    number of entries of each directory, `nids` and `types` what each entry leads to.
    """

    names: EntryNames
    nids: Numbers
    types: NDArray[np.uint8]
    counts: Numbers


@dataclass(frozen=True, slots=True, eq=False)
class Directories:
    """Directories as blocks: the first block of each among them, and how many it has."""

    data: bytes
    first: Numbers
    blocks: Numbers


def build_directories(entries: DirectoryEntries, own: Numbers, above: Numbers) -> Directories:
    """The blocks of directories whose nids are `own`, in directories `above`. Raises FormatError for a name that an
    image cannot have.
    """
    entries = _with_dots(entries, own, above)
    names, count = entries.names, len(entries.nids)
    begins = _first_entries(names.sizes + DIRENT.itemsize, entries.counts)
    block = np.repeat(np.arange(len(begins)), np.diff(begins, append=count))
    first = begins[block]
    in_block = np.diff(begins, append=count)[block]
    before = np.cumsum(names.sizes) - names.sizes
    name_at = DIRENT.itemsize * in_block + before - before[first]
    dirents = np.zeros(count, DIRENT)
    dirents["nid"], dirents["nameoff"], dirents["file_type"] = entries.nids, name_at, entries.types
    data = np.zeros(len(begins) * BLOCK, np.uint8)
    words, places = data.view("<u4"), (block * BLOCK + DIRENT.itemsize * (np.arange(count) - first)) // 4
    words[places[:, None] + np.arange(DIRENT.itemsize // 4)] = dirents.view("<u4").reshape(count, -1)
    letters = np.arange(int(names.sizes.sum()))
    from_ = np.repeat(names.starts - before, names.sizes) + letters
    data[np.repeat(block * BLOCK + name_at - before, names.sizes) + letters] = names.data[from_]
    starts = np.cumsum(entries.counts) - entries.counts  # each directory has entries, and begins with a block
    first_block = block[starts]
    return Directories(data.tobytes(), first_block, np.diff(first_block, append=len(begins)))


def _with_dots(entries: DirectoryEntries, own: Numbers, above: Numbers) -> DirectoryEntries:
    """The entries with `.` and `..`, which are where their names belong."""
    names, counts = entries.names, entries.counts
    if len(names.sizes) and not 0 < int(names.sizes.min()) <= int(names.sizes.max()) <= NAME_MAX:
        raise FormatError(f"a name has no bytes, or more than {NAME_MAX}", offset=0)
    group = np.repeat(np.arange(len(counts)), counts)
    head = names.data[names.starts] if len(names.starts) else np.zeros(0, np.uint8)
    second = names.data[np.minimum(names.starts + 1, max(len(names.data) - 1, 0))] if len(names.starts) else head
    has_dot = head == _DOT
    if (has_dot & ((names.sizes == 1) | ((names.sizes == 2) & (second == _DOT)))).any():
        raise FormatError("a name is . or ..", offset=0)
    before_dot = np.bincount(group[head < _DOT], minlength=len(counts))
    between = has_dot & (second < _DOT)
    before_dots = before_dot + np.bincount(group[between], minlength=len(counts))
    starts = np.cumsum(counts) - counts
    rank = np.arange(len(names.sizes)) - starts[group]
    place = np.arange(len(names.sizes)) + 2 * group + (rank >= before_dot[group]) + (rank >= before_dots[group])
    begin = starts + 2 * np.arange(len(counts))
    dot, dots = begin + before_dot, begin + before_dots + 1
    total, end = len(names.sizes) + 2 * len(counts), len(names.data)

    def merged(of_entries: NDArray[np.generic], of_dot: Numbers | int, of_dots: Numbers | int) -> Numbers:
        numbers = np.empty(total, np.int64)
        numbers[place], numbers[dot], numbers[dots] = of_entries, of_dot, of_dots
        return numbers

    data = np.concatenate([names.data, np.frombuffer(b"..", np.uint8)])
    return DirectoryEntries(
        EntryNames(data, merged(names.starts, end, end), merged(names.sizes, 1, 2)),
        merged(entries.nids, own, above),
        merged(entries.types, DIRECTORY, DIRECTORY).astype(np.uint8),
        counts + 2,
    )


def _first_entries(sizes: Numbers, counts: Numbers) -> Numbers:
    """The first entry of each block: as many entries are in one as fit, and no two directories are."""
    ends, first = np.cumsum(sizes).tolist(), list[int]()
    entry, before = 0, 0
    for end in np.cumsum(counts).tolist():
        while entry < end:
            first.append(entry)
            entry = bisect_right(ends, before + BLOCK, entry, end)
            before = ends[entry - 1]
    return np.array(first, np.int64)
