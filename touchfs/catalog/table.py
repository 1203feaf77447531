"""A view of a shard as a table of its catalog: every file and directory of it, mapped and never loaded. The columns:

    name     one component of its path
    parent   the row of its directory
    kind     what it is: 0 is a directory, others number `Catalog.kinds`
    ordinal  the sample it shows, part: which piece of it (a segment's number)
    offset, length   where its bytes are in the kind's source; of a directory: its first child's row, and how many
    size     the file's size in bytes
    frames   of a recording whose form does not tell its length: how many samples it has, at the `rate` of its kind
    suffix   how many bytes at the end of its path do not come from the key: those of `.wav`, or of `/0000.wav`
    order    apart from the other columns: the rows of all files, by sample, and a sample's files as its view has them
    keyed    where the raw key of its sample is: `UNKEYED` if it has none and was named by us, `IN_PATH` if its path is
             the key and the suffix, `STORED` if it is in the column `key`, `SHOWN` if it is there, but the path is the
             one that it is shown under and the suffix
    key      the raw key where it is stored (half a surrogate pair, which JSON can spell, as UTF-8 would have it)
    inline   the bytes themselves, where they are not a range of the shard but computed from it (a transcript)

Row 0 is the view's directory of the shard. Rows go level by level, and within a directory by name, so a directory's
children are one run of rows: a look-up is a binary search, a listing a walk, and the row is the inode number's lower
half and the place in a listing. (Rows sorted by whole path would make children contiguous too, but with every
grandchild between them.)

A catalog stores not all of them (`touchfs.catalog.columns`).
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

import numpy as np
from numpy.typing import NDArray

from touchfs.catalog.columns import Omitted, as_array, restore, take
from touchfs.errors import FormatError
from touchfs.format.arrow import ipc as arrow_ipc
from touchfs.names import plain_path

DIRECTORY = 0
NO_SAMPLE = 2**32 - 1
UNKEYED, IN_PATH, STORED, SHOWN = range(4)


class Table:
    """One view of one shard. All accessors take a row that came from this table.

    `top` is how many children the view's directory has, which no column tells: it would be the largest of all lengths.

    What a row says of others is checked where it is used, so that a damaged catalog (at `path`) is a FormatError and
    never an endless walk: a parent is above its child, and children are below their directory and in the table.
    """

    __slots__ = (
        "_are_paths",
        "_data",
        "_files",
        "_first_of_parts",
        "_inline",
        "_keys",
        "_samples",
        "_starts",
        "_top",
        "frames",
        "keyed",
        "kind",
        "length",
        "offset",
        "order",
        "ordinal",
        "parent",
        "part",
        "path_of_catalog",
        "rows",
        "size",
        "suffix",
    )

    def __init__(
        self, batch: arrow_ipc.Batch, top: int, omitted: Omitted, keys_are_paths: bool, path: str = ""
    ) -> None:
        numbers, texts = restore(batch, omitted)
        self.path_of_catalog = path
        self.rows = batch.rows
        self._top = top
        self._are_paths = keys_are_paths
        self._starts = texts["name"].offsets.data
        self._data = texts["name"].data
        self._keys = texts["key"]
        self._inline = texts["inline"]
        self.parent = numbers["parent"]
        self.kind = numbers["kind"]
        self.ordinal = numbers["ordinal"]
        self.part = numbers["part"]
        self.offset = numbers["offset"]
        self.length = numbers["length"]
        self.size = numbers["size"]
        self.frames = numbers["frames"]
        self.suffix = numbers["suffix"]
        self.keyed = numbers["keyed"]
        self.order = numbers["order"]
        self._first_of_parts: NDArray[np.integer[Any]] | None = None
        # Of samples: the report, which is of none, and directories come last.
        self._files = bisect_left(self.order, NO_SAMPLE, key=self.ordinal.__getitem__)
        self._samples = self.ordinal[self.order[self._files - 1]] + 1 if self._files else 0

    def _damaged(self, row: int) -> FormatError:
        return FormatError(f"row {row} of the catalog is damaged: index with --force", path=self.path_of_catalog)

    def _disordered(self) -> FormatError:
        return FormatError("the order of the catalog is damaged: index with --force", path=self.path_of_catalog)

    def name(self, row: int) -> bytes:
        start, end = self._starts[row], self._starts[row + 1]
        if not 0 <= start <= end <= len(self._data):
            raise self._damaged(row)
        return bytes(self._data[start:end])

    def ending(self, row: int, size: int) -> str:
        """The last bytes of a name, as `os.fsdecode` has them."""
        end = self._starts[row + 1]
        return str(self._data[end - size : end], "utf-8", "surrogateescape")

    def path(self, row: int) -> bytes:
        """The path of a row from the view's directory of the shard, which is row 0."""
        parents = self.parent
        path = self.name(row)
        while parent := parents[row]:
            if parent >= row:
                raise self._damaged(row)
            row = parent
            path = self.name(row) + b"/" + path
        return path

    def key(self, row: int) -> str:
        """The raw key of a file's sample, or what we named the sample. What is not UTF-8 in it as in `os.fsdecode`."""
        key = self._keys[row] if self.keyed[row] >= STORED else self._stem(row)
        return key.decode("utf-8", "surrogateescape")

    def _stem(self, row: int) -> bytes:
        path = self.path(row)
        return path[: len(path) - self.suffix[row]]

    def shown_key(self, row: int) -> str:
        """The key that a file's sample is shown under."""
        return plain_path(self.key(row)) if self._are_paths else self.key(row)

    def own_key(self, row: int) -> bytes:
        """The raw key of a file's sample as bytes; empty where we named the sample."""
        keyed = self.keyed[row]
        return self._keys[row] if keyed >= STORED else self._stem(row) if keyed == IN_PATH else b""

    def files(self, ordinal: int) -> list[int]:
        """The rows of a sample's files, as the view has them."""
        order, ordinals = self.order, self.ordinal
        # Nearly always all samples have as many files.
        first = ordinal * self._files // self._samples if self._files else 0
        try:
            if (
                first >= self._files
                or ordinals[order[first]] != ordinal
                or (first and ordinals[order[first - 1]] == ordinal)
            ):
                first = bisect_left(order, ordinal, key=ordinals.__getitem__)
            last = first
            while last < self._files and ordinals[order[last]] == ordinal:
                last += 1
        except IndexError as error:
            raise self._disordered() from error
        return list(order[first:last])

    def first_files(self, ordinals: NDArray[np.int64]) -> NDArray[np.int64]:
        """Of each sample the first of `files`, or -1 where it has none."""
        if not self._files:
            return np.full(len(ordinals), -1)
        guesses = np.minimum(ordinals * self._files // self._samples, self._files - 1)
        try:
            rows = take(self.order, guesses)
            before = take(self.order, np.maximum(guesses - 1, 0))
            is_before = (guesses > 0) & (take(self.ordinal, before) == ordinals)
            is_wrong = is_before | (take(self.ordinal, rows) != ordinals)
        except IndexError as error:
            raise self._disordered() from error
        for place in np.flatnonzero(is_wrong).tolist():
            rows[place] = next(iter(self.files(int(ordinals[place]))), -1)
        return rows

    def first_files_of_parts(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Of each part of a sample the first file. Parts are counted through, over all samples. The first time all are
        looked for, which takes some 10 ns a file.
        """
        try:
            if self._first_of_parts is None:
                order = as_array(self.order)[: self._files]
                ordinals, parts = as_array(self.ordinal)[order], as_array(self.part)[order]
                is_first = np.ones(len(order), bool)
                is_first[1:] = (ordinals[1:] != ordinals[:-1]) | (parts[1:] != parts[:-1])
                self._first_of_parts = order[is_first]
            return self._first_of_parts[numbers].astype(np.int64)
        except IndexError as error:
            raise self._disordered() from error

    def paths(self, rows: NDArray[np.int64], prefix: bytes) -> list[bytes]:
        """Those of `path`, with a prefix."""
        starts, data = np.asarray(self._starts), self._data
        try:
            directories = np.asarray(self.parent)[rows]
        except IndexError as error:
            raise self._disordered() from error
        if (directories >= rows).any():
            raise self._damaged(int(rows[directories >= rows][0]))
        parents = directories.tolist()
        before = {0: prefix}
        if above := sorted(set(parents) - {0}):
            paths = self.paths(np.array(above), prefix)
            before |= {row: path + b"/" for row, path in zip(above, paths, strict=True)}
        spans = zip(parents, starts[rows].tolist(), starts[rows + 1].tolist(), strict=True)
        return [before[parent] + data[begin:end] for parent, begin, end in spans]

    def inline(self, row: int) -> bytes:
        return self._inline[row]

    def children(self, row: int) -> range:
        """The rows in a directory, in name order."""
        first, count = self.offset[row], self.length[row] if row else self._top
        if not (row < first and 0 <= count <= self.rows - first):
            raise self._damaged(row)
        return range(first, first + count)

    def find(self, row: int, name: bytes) -> int | None:
        """The child of a directory with this name."""
        starts, data = self._starts, self._data
        children = self.children(row)
        low, high = children.start, children.stop
        end = high
        while low < high:
            middle = (low + high) // 2
            if bytes(data[starts[middle] : starts[middle + 1]]) < name:
                low = middle + 1
            else:
                high = middle
        return low if low < end and self.name(low) == name else None
