"""A view of a shard as a table of its catalog, with a row per file and directory, mapped and never loaded. The columns:

    name     last component of the path
    parent   row of the directory that contains it
    kind     0 for a directory; otherwise an index, from 1, into `Catalog.kinds`
    ordinal  ordinal of the sample that the file belongs to; part: number of the segment within the sample
    offset, length   byte range in the kind's source; for a directory, its first child's row and number of children
    size     size of the file in bytes
    frames   number of samples, at the `rate` of its kind, of a recording whose form does not imply it
    suffix   number of bytes at the end of the path that are not part of the key: those of `.wav`, or of `/0000.wav`
    order    unlike the other columns, the rows of all files sorted by sample and, within it, in the order of the view
    keyed    where the raw key of the sample is: `UNKEYED` if it has none and touchfs named it, `IN_PATH` if the path is
             key and suffix, `STORED` if it is in the column `key`, `SHOWN` if it is in the column `key` and the path is
             `plain_path` of the key and suffix
    key      raw key if it is stored; a lone surrogate, which JSON can contain, as UTF-8 would encode it
    inline   content that is computed and not a range of the shard (a transcript)

Row 0 is the view's directory of the shard. Rows are sorted level by level, and by name within a directory, so the
children of a directory are contiguous: a lookup is a binary search, a listing is a scan, and the row is the lower half
of the inode number and the position in a listing. (Rows sorted by whole path would put all descendants between two
children.)

A catalog omits columns that can be computed (`touchfs.catalog.columns`).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from touchfs.catalog.columns import NUMBERS, Omitted, as_array, restore, take
from touchfs.catalog.derived import NO_SAMPLE
from touchfs.core.errors import FormatError
from touchfs.core.names import is_name, plain_path
from touchfs.core.packed_bytes import PackedBytes
from touchfs.format.arrow.mapped_columns import BinaryColumn, Column
from touchfs.format.arrow.mapped_file import Batch

__all__ = ["COLUMNS", "DIRECTORY", "IN_PATH", "NO_SAMPLE", "SHOWN", "STORED", "UNKEYED", "Table"]

# The name of the table of whole columns in a catalog. Only shards that are tables have it.
COLUMNS = "columns"
DIRECTORY = 0
UNKEYED, IN_PATH, STORED, SHOWN = range(4)
# Samples for which one pass over all files is faster than to bisect for each.
_MANY = 1 << 10


class Table:
    """One view of one shard. All accessors take a row that came from this table.

    `top` is the number of children of the view's directory. No column has it: it would be the largest of all lengths.

    References between rows are checked when they are used, so that a damaged catalog (at `path`) raises FormatError and
    never causes an endless loop: a parent's row is before its child's, and children are after it and in the table.
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
        self,
        batch: Batch,
        top: int,
        omitted: Omitted,
        keys_are_paths: bool,
        path: str = "",
        kind_names: Sequence[str] = (),
    ) -> None:
        numbers, texts = restore(batch, omitted, kind_names)
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
        # The number of files of samples: ERROR.txt and directories, which belong to no sample, come last.
        # In a `range` of ordinals only the first row is a directory.
        is_range = isinstance(self.ordinal, range)
        self._files = self.rows - 1 if is_range else bisect_left(self.order, NO_SAMPLE, key=self.ordinal.__getitem__)
        self._samples = self.ordinal[self.order[self._files - 1]] + 1 if self._files else 0

    def _damaged(self, row: int) -> FormatError:
        return FormatError(f"row {row} of the catalog is damaged: index with --force", path=self.path_of_catalog)

    def _disordered(self) -> FormatError:
        return FormatError("the order of the catalog is damaged: index with --force", path=self.path_of_catalog)

    def name(self, row: int) -> bytes:
        """Return the last component of a row's path. Raises FormatError for one that cannot be a name of ours."""
        start, end = self._starts[row], self._starts[row + 1]
        if not 0 <= start <= end <= len(self._data):
            raise self._damaged(row)
        return self._checked(row, bytes(self._data[start:end]))

    def _checked(self, row: int, name: bytes) -> bytes:
        if row and not is_name(name):
            raise self._damaged(row)
        return name

    def columns(self) -> dict[str, Column]:
        """Return all columns as they are written, also omitted ones. Those of a table without names have none."""
        columns: dict[str, Column] = {name: as_array(getattr(self, name)) for name in NUMBERS}
        if isinstance(self.ordinal, range):
            columns["ordinal"] = np.append(NO_SAMPLE, self.ordinal[1:])
        if isinstance(self.order, range):
            columns["order"] = np.append(self.order, 0)
        columns["name"] = BinaryColumn(np.asarray(self._starts), self._data)
        return columns | {"key": self._keys, "inline": self._inline}

    @property
    def names(self) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """The bytes of all names, and where that of each row begins; one more is where the last one ends.

        Raises FormatError for names that cannot be ours, as `name`. Of a name without bytes it says nothing.
        """
        starts = np.asarray(self._starts).astype(np.int64)
        if starts[0]:
            raise self._damaged(0)
        return self._joined_names(0, starts), starts

    def _joined_names(self, row: int, starts: NDArray[np.int64]) -> NDArray[np.uint8]:
        """The bytes of all names, after checking those of consecutive rows, which begin and end at `starts`."""
        data = np.frombuffer(self._data, np.uint8)
        if starts[0] < 0 or starts[-1] > len(data) or (np.diff(starts) < 0).any():
            raise self._damaged(row)
        # A letter of several bytes is not in two names.
        begins = data[starts[starts < len(data)]]
        if ((begins & 0xC0) == 0x80).any() or not is_name(b"-" + bytes(self._data[starts[0] : starts[-1]])):
            raise self._damaged(row)
        return data

    def names_of(self, rows: range) -> PackedBytes:
        """Return `name` of consecutive rows below row 0."""
        starts = np.asarray(self._starts[rows.start : rows.stop + 1]).astype(np.int64)
        data, lengths = self._joined_names(rows.start, starts), np.diff(starts)
        for place in np.flatnonzero(lengths <= len(b"..")).tolist():
            self.name(rows[place])
        return PackedBytes(data, starts[:-1], lengths)

    def extension(self, row: int) -> str:
        """Return the extension of a file of a sample: what follows the key and a dot, or ""."""
        size = self.suffix[row]
        if not size:
            return ""
        end = self._starts[row + 1]
        return str(self._data[end - size + 1 : end], "utf-8", "surrogateescape")

    def path(self, row: int) -> bytes:
        """Return the path of a row relative to row 0, the view's directory of the shard."""
        parents = self.parent
        path = self.name(row)
        while parent := parents[row]:
            if parent >= row:
                raise self._damaged(row)
            row = parent
            path = self.name(row) + b"/" + path
        return path

    def key(self, row: int) -> str:
        """Return the raw key of a file's sample, or the name that touchfs gave it, decoded as by `os.fsdecode`."""
        key = self._keys[row] if self.keyed[row] >= STORED else self._stem(row)
        return key.decode("utf-8", "surrogateescape")

    def keys(self, rows: NDArray[np.int64]) -> PackedBytes:
        """Return `key` of many files, as bytes; shape `rows.shape`."""
        try:
            is_stored = take(self.keyed, rows) >= STORED
            return PackedBytes.either(is_stored, self._stored(rows[is_stored]), self._stems(rows[~is_stored]))
        except IndexError as error:
            raise self._disordered() from error

    def _stored(self, rows: NDArray[np.int64]) -> PackedBytes:
        return self._spans(rows, np.asarray(self._keys.offsets), self._keys.data)

    def _spans(self, rows: NDArray[np.int64], bounds: NDArray[Any], data: memoryview) -> PackedBytes:
        starts, ends = bounds[rows].astype(np.int64), bounds[rows + 1].astype(np.int64)
        is_wrong = (starts < 0) | (starts > ends) | (ends > len(data))
        if is_wrong.any():
            raise self._damaged(int(rows[is_wrong.argmax()]))
        return PackedBytes(np.frombuffer(data, np.uint8), starts, ends - starts)

    def _stems(self, rows: NDArray[np.int64]) -> PackedBytes:
        """The paths of files without their suffixes."""
        bounds, cut, at = np.asarray(self._starts), take(self.suffix, rows), rows.copy()
        names = self._spans(at, bounds, self._data)
        while (is_above := cut > names.lengths).any():  # the suffix has all of the name, and the slash before it
            parents = take(self.parent, at[is_above])
            if (parents >= at[is_above]).any():
                raise self._damaged(int(at[is_above][0]))
            cut[is_above] -= names.lengths[is_above] + 1
            at[is_above] = parents
            names = self._spans(at, bounds, self._data)
        stems, parents = names._replace(lengths=names.lengths - cut), take(self.parent, at)
        if not parents.any():
            return stems
        distinct, which = np.unique(parents, return_inverse=True)
        above = PackedBytes.of([self.path(parent) + b"/" if parent else b"" for parent in distinct.tolist()])
        return above.chosen(which).followed_by(stems)

    def _stem(self, row: int) -> bytes:
        path = self.path(row)
        return path[: len(path) - self.suffix[row]]

    def shown_key(self, row: int) -> str:
        """Return the key that a file's sample is shown under."""
        return plain_path(self.key(row)) if self._are_paths else self.key(row)

    def own_key(self, row: int) -> bytes:
        """Return the raw key of a file's sample as bytes; empty if it has none and touchfs named it."""
        keyed = self.keyed[row]
        return self._keys[row] if keyed >= STORED else self._stem(row) if keyed == IN_PATH else b""

    def files(self, ordinal: int) -> list[int]:
        """Return the rows of a sample's files, in the order of the view."""
        order, ordinals = self.order, self.ordinal
        if isinstance(ordinals, range):  # each sample has one file, and their order is that of the rows
            return [ordinal - ordinals.start] if 0 <= ordinal < self._samples else []
        # Nearly always all samples have the same number of files.
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

    def _places(self, ordinal: int) -> tuple[int, int]:
        """Where in `order` the files of a sample begin and end, however many they are."""
        if not self._files:
            return 0, 0
        try:
            first = int(self._first_places(np.array([ordinal]))[0])
            return first, bisect_right(self.order, ordinal, first, self._files, key=self.ordinal.__getitem__)
        except IndexError as error:
            raise self._disordered() from error

    def parts(self, ordinal: int) -> int:
        """Return how many parts a sample has: the number of the last one, and one."""
        first, last = self._places(ordinal)
        try:
            return self.part[self.order[last - 1]] + 1 if last > first else 0
        except IndexError as error:
            raise self._disordered() from error

    def files_of_parts(self, ordinal: int, first: int = 0, stop: int | None = None, step: int = 1) -> list[int]:
        """Return the rows of a sample's files, in the order of the view, of each `step`th part from `first` on and
        before `stop`.
        """
        if not first and stop is None and step == 1:
            return self.files(ordinal)
        (low, high), order, part = self._places(ordinal), self.order, self.part
        places = range(low, high)
        try:
            number: Callable[[int], int] = lambda place: part[order[place]]  # noqa: E731
            if stop is not None:
                high = low + bisect_left(places, stop, key=number)
            if first:
                low += bisect_left(places, first, key=number)
            if step == 1:
                return list(order[low:high])
            rows = take(order, np.arange(low, high))
            return rows[(take(part, rows) - first) % step == 0].tolist()  # type: ignore[no-any-return]
        except IndexError as error:
            raise self._disordered() from error

    def first_files(self, ordinals: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the first of `files` of each sample, or -1 if it has none; shape `ordinals.shape`."""
        if not self._files:
            return np.full(len(ordinals), -1)
        try:
            rows = take(self.order, np.minimum(self._first_places(ordinals), self._files - 1))
            return np.where(take(self.ordinal, rows) == ordinals, rows, -1)
        except IndexError as error:
            raise self._disordered() from error

    def rows_of(self, ordinals: NDArray[np.int64], extension: bytes) -> NDArray[np.int64]:
        """Return the row of each sample's file with an extension, the last of several, or -1, as `first_files`."""
        found = np.full(len(ordinals), -1)
        if not self._files:
            return found
        try:
            if isinstance(self.ordinal, range):  # as in `files`
                rows = np.minimum(ordinals, self._samples - 1) - self.ordinal.start
                return np.where(self.have_extension(rows, extension) & (ordinals < self._samples), rows, -1)
            left, places = np.arange(len(ordinals)), self._first_places(ordinals)
            while len(left):
                rows = take(self.order, np.minimum(places, self._files - 1))
                is_own = (places < self._files) & (take(self.ordinal, rows) == ordinals[left])
                left, places, rows = left[is_own], places[is_own] + 1, rows[is_own]
                if len(left):
                    has_it = self.have_extension(rows, extension)
                    found[left[has_it]] = rows[has_it]
            return found
        except IndexError as error:
            raise self._disordered() from error

    def _first_places(self, ordinals: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return where in `order` the files of each sample begin, or would begin if it has none."""
        places = np.minimum(ordinals * self._files // self._samples, self._files - 1)
        before = take(self.ordinal, take(self.order, np.maximum(places - 1, 0)))
        is_wrong = (take(self.ordinal, take(self.order, places)) != ordinals) | ((places > 0) & (before == ordinals))
        wrong = np.flatnonzero(is_wrong)
        if len(wrong) > _MANY:
            by_place = take(self.ordinal, take(self.order, np.arange(self._files)))
            places[wrong] = np.searchsorted(by_place, ordinals[wrong])
            return places
        for i in wrong.tolist():
            places[i] = bisect_left(self.order, int(ordinals[i]), hi=self._files, key=self.ordinal.__getitem__)
        return places

    def have_extension(self, rows: NDArray[np.int64], extension: bytes) -> NDArray[np.bool_]:
        """Return for each row of a file whether it has an extension; shape `rows.shape`."""
        size, sizes = len(extension), take(self.suffix, rows)
        if not size:
            return sizes <= 1
        ends = take(self._starts, rows + 1)
        found: NDArray[np.bool_] = (sizes == size + 1) & (ends >= size) & (ends <= len(self._data))
        letters = np.asarray(self._data)[ends[found, None] + np.arange(-size, 0)]
        found[found] = (letters == np.frombuffer(extension, np.uint8)).all(axis=1)
        return found

    def first_files_of_parts(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the row of the first file of each part, where `numbers` count the parts of all samples.

        The first call finds all parts, which takes about 10 ns per file.
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
        """Return `prefix + path(row)` for each row."""
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
        spans = [*zip(parents, starts[rows].tolist(), starts[rows + 1].tolist(), strict=True)]
        return [
            before[parent] + self._checked(row, bytes(data[begin:end]))
            for row, (parent, begin, end) in zip(rows.tolist(), spans, strict=True)
        ]

    def inline(self, row: int) -> bytes:
        """Return the content of a file that the catalog stores itself; empty for other files."""
        return self._inline[row]

    def inline_sizes(self) -> NDArray[np.int64]:
        """Return the size of each content that `inline` gives; of a damaged one it is any number."""
        offsets = np.asarray(self._inline.offsets).astype(np.int64)
        return offsets[1:] - offsets[:-1]

    def children(self, row: int) -> range:
        """Return the rows of a directory's children, in name order. Raises FormatError."""
        first, count = self.offset[row], self.length[row] if row else self._top
        if not (row < first and 0 <= count <= self.rows - first):
            raise self._damaged(row)
        return range(first, first + count)

    def find(self, row: int, name: bytes) -> int | None:
        """Return the row of a directory's child with this name, or None."""
        return self.search(self.children(row), name)

    def search(self, children: range, name: bytes) -> int | None:
        """Return the row with this name among children of a directory, in name order, or None."""
        starts, data = self._starts, self._data
        low, high = children.start, children.stop
        end = high
        while low < high:
            middle = (low + high) // 2
            if bytes(data[starts[middle] : starts[middle + 1]]) < name:
                low = middle + 1
            else:
                high = middle
        return low if low < end and bytes(data[starts[low] : starts[low + 1]]) == name else None
