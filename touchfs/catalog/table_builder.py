"""Build the table of one view, file by file. `touchfs.catalog.table` describes its columns.

Files are added with their numbers and keys; their paths are known at last, when all names are assigned.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable, Sequence
from itertools import repeat

import numpy as np
from numpy.typing import NDArray

from touchfs.catalog.derived import ROWS_MAX
from touchfs.catalog.directory_tree import DirectoryTree
from touchfs.catalog.table import DIRECTORY, IN_PATH, NO_SAMPLE, SHOWN, STORED, UNKEYED
from touchfs.core.errors import FormatError
from touchfs.core.names import plain_path
from touchfs.format.arrow.mapped_columns import BinaryColumn, Column

_NUMBER_COLUMNS = ("kind", "ordinal", "part", "offset", "length", "size", "frames", "suffix")
_BLOCK = 1 << 14
_NUMBERS = struct.Struct(f"{len(_NUMBER_COLUMNS)}q")


def encode_key(key: str) -> bytes:
    """Encode a raw key as catalogs store it: escaped bytes as they were, a lone surrogate as UTF-8 would encode it."""
    try:
        return key.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return key.encode("utf-8", "surrogatepass")


class TableBuilder:
    """The files of one view, from which `columns` makes its table."""

    def __init__(self, *, keys_are_paths: bool = False) -> None:
        self._keys_are_paths = keys_are_paths
        self._numbers = bytearray()  # 64 bytes per file; a tuple of ints would take 320
        self._keys: list[bytes] = []
        self._inlines = bytearray()  # one after the other
        self._ends = array("Q", [0])

    def add(
        self,
        kind: int,
        ordinal: int,
        part: int,
        offset: int,
        length: int,
        size: int,
        suffix: int = 0,
        key: bytes = b"",
        inline: bytes = b"",
        frames: int = 0,
    ) -> None:
        """Add a file. `touchfs.catalog.table` describes the columns. Files are added by sample, in the view's order."""
        self._numbers += _NUMBERS.pack(kind, ordinal, part, offset, length, size, frames, suffix)
        self._keys.append(key)
        self._inlines += inline
        self._ends.append(len(self._inlines))

    def add_alike(
        self,
        kinds: Sequence[int],
        ordinals: range,
        spans: NDArray[np.int64],
        suffixes: Sequence[int],
        keys: Sequence[bytes],
    ) -> None:
        """Add a file of each kind for each of these samples, as `add` does: the range of bytes that `spans` has, an
        array of offsets and sizes of shape (samples, kinds, 2).
        """
        samples, files, _ = spans.shape
        numbers = np.zeros((samples, files, len(_NUMBER_COLUMNS)), np.int64)
        for name, values in (
            ("kind", kinds),
            ("ordinal", np.array(ordinals)[:, np.newaxis]),
            ("offset", spans[..., 0]),
            ("length", spans[..., 1]),
            ("size", spans[..., 1]),
            ("suffix", suffixes),
        ):
            numbers[..., _NUMBER_COLUMNS.index(name)] = values
        self._numbers += numbers.tobytes()
        self._keys += (key for key in keys for _ in kinds)
        self._ends.extend(repeat(len(self._inlines), samples * files))

    def extend(self, part: TableBuilder, kinds: Sequence[int]) -> None:
        """Add the files of another builder, after these. `kinds` are the numbers of its kinds here, by its own."""
        numbers = np.frombuffer(part._numbers, np.int64).reshape(-1, len(_NUMBER_COLUMNS)).copy()
        numbers[:, 0] = np.array(kinds)[numbers[:, 0]]
        self._numbers += numbers.tobytes()
        self._keys += part._keys
        ends = np.frombuffer(part._ends, np.uint64)[1:] + np.uint64(len(self._inlines))
        self._ends.frombytes(ends.tobytes())
        self._inlines += part._inlines

    def __len__(self) -> int:
        return len(self._keys)

    def _stored(self, key: bytes, path: bytes, suffix: int) -> int:
        """Return the value of the column `keyed` for a key in the column `key`."""
        if not self._keys_are_paths:
            return STORED
        shown = plain_path(key.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
        return SHOWN if path[: len(path) - suffix] == shown else STORED

    def columns(self, paths: Iterable[tuple[bytes, bytes]]) -> dict[str, Column]:
        """Return the columns of the table, once. `paths` has the directory and name of each file, in order of `add`.

        Directories are `/`-separated paths relative to the shard. Paths are unique. Raises FormatError for more than
        `ROWS_MAX` rows.
        """
        tree = DirectoryTree(len(self))
        files = np.frombuffer(self._numbers, np.int64).reshape(len(self), len(_NUMBER_COLUMNS))
        keys, keyed = [], bytearray()
        for (directory, name), key, suffix in zip(paths, self._keys, files[:, -1].tolist(), strict=True):
            tree.add(directory, name)
            path = directory + b"/" + name if directory else name
            is_in_path = path[: len(path) - suffix] == key
            keyed.append(UNKEYED if not key else IN_PATH if is_in_path else self._stored(key, path, suffix))
            keys.append(b"" if is_in_path else key)
        nodes, parents, spans = tree.lay_out()
        if len(nodes) > ROWS_MAX:
            raise FormatError(f"{len(nodes)} files in one shard; at most {ROWS_MAX} fit")
        spans[0] = spans[0][0], 0  # `Table` gets the number of children of the first directory as `top`
        directories = np.array([(DIRECTORY, NO_SAMPLE, 0, first, count, 0, 0, 0) for first, count in spans], np.int64)
        order = np.frombuffer(nodes, np.uint32)
        columns: dict[str, Column] = {"parent": np.frombuffer(parents, np.uint32)}
        columns["order"] = np.argsort(order).astype(np.uint32)
        columns["keyed"] = np.frombuffer(bytes(keyed).ljust(len(nodes), b"\0"), np.uint8)[order]
        for i, column in enumerate(_NUMBER_COLUMNS):
            numbers = np.concatenate((files[:, i], directories[:, i]))
            narrow = np.promote_types(np.min_scalar_type(numbers.min()), np.min_scalar_type(numbers.max()))
            columns[column] = numbers.astype(narrow)[order]
        # The files of a day of speech take 100 MB, so what is done with is released.
        del files, numbers
        self._numbers = bytearray()
        columns["name"] = BinaryColumn.of(tree.names[node] for node in nodes)
        del tree
        keys += [b""] * len(spans)
        columns["key"] = BinaryColumn.of(keys[node] for node in nodes)
        del keys
        columns["inline"] = self._inline(order)
        return columns

    def _inline(self, order: NDArray[np.uint32]) -> BinaryColumn:
        """The column `inline` of rows in this order of nodes."""
        ends = np.append(np.frombuffer(self._ends, np.uint64), np.full(len(order) - len(self), self._ends[-1]))
        ends = ends.astype(np.int64)
        offsets = np.append(0, np.cumsum(np.diff(ends)[order]))
        data, inlines = bytearray(), memoryview(self._inlines)
        for start in range(0, len(order), _BLOCK):
            nodes = order[start : start + _BLOCK]
            for first, last in zip(ends[nodes].tolist(), ends[1:][nodes].tolist(), strict=True):
                data += inlines[first:last]
        return BinaryColumn.at(offsets, memoryview(data))
