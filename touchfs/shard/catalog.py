"""The catalog of a shard: every file and directory that its views show, as tables that are mapped and never loaded.

A catalog is an uncompressed Arrow IPC file with one record batch a view, all of one schema, a row a file or directory:

    name     one component of its path
    parent   the row of its directory
    kind     what it is: 0 is a directory, others number `Catalog.kinds`
    ordinal  the sample it shows, part: which piece of it (a segment's number)
    offset, length   where its bytes are in the kind's source; of a directory: its first child's row, and how many
    size     the file's size in bytes
    suffix   how many bytes at the end of its path do not come from the key: those of `.wav`, or of `/0000.wav`
    order    apart from the other columns: the rows of all files, by sample, and a sample's files as its view has them
    key      the raw key of its sample (half a surrogate pair, which JSON can spell, as UTF-8 would have it); empty if
             the sample has none and was named by us
    inline   the bytes themselves, where they are not a range of the shard but computed from it (a transcript)

Row 0 is the view's directory of the shard. Rows go level by level, and within a directory by name, so a directory's
children are one run of rows: a look-up is a binary search, a listing a walk, and the row is the inode number's lower
half and the place in a listing. (Rows sorted by whole path would make children contiguous too, but with every
grandchild between them.) What is known of the shard as a whole is in the metadata, under the key `touchfs`.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from touchfs.errors import ChangedError, FormatError, SourceError
from touchfs.format import arrow_ipc
from touchfs.source.atomic import atomic_file
from touchfs.source.local import FileIdentity

VERSION = 3
DIRECTORY = 0
NO_SAMPLE = 2**32 - 1
ROWS_MAX = 2**32 - 1
KINDS_MAX = 2**16 - 1

_SCHEMA = {
    "name": "binary",
    "parent": "uint32",
    "kind": "uint16",
    "ordinal": "uint32",
    "part": "uint32",
    "offset": "int64",
    "length": "int64",
    "size": "int64",
    "suffix": "uint16",
    "order": "uint32",
    "key": "binary",
    "inline": "binary",
}


@dataclass(frozen=True, slots=True)
class Kind:
    """What files of one kind are: a field of a sample, the file of the shard it lies in, and its form."""

    field: str
    source: str
    form: str
    note: str = ""


_NUMBER_COLUMNS = ("kind", "ordinal", "part", "offset", "length", "size", "suffix")
_NUMBERS = struct.Struct(f"{len(_NUMBER_COLUMNS)}q")


@dataclass(frozen=True, slots=True)
class Facts:
    """What a catalog says of its shard as a whole. `report` is the text of ERROR.txt, empty when all is well."""

    files: Mapping[str, FileIdentity]
    samples: int
    seconds: float
    size: int
    index_size: int
    damaged: int
    report: str


def encode_key(key: str) -> bytes:
    """A raw key as catalogs keep it: what is not UTF-8 in a name as it was, half a surrogate pair as UTF-8 would be."""
    try:
        return key.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return key.encode("utf-8", "surrogatepass")


class TableBuilder:
    """Collects the files of one view."""

    def __init__(self) -> None:
        self._numbers = bytearray()  # 56 bytes a file, where a tuple of ints would take 280
        self._keys: list[bytes] = []
        self._inlines: list[bytes] = []

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
    ) -> None:
        """A file, its columns as in the module. Files are added by sample, in the order that `order` keeps."""
        self._numbers += _NUMBERS.pack(kind, ordinal, part, offset, length, size, suffix)
        self._keys.append(key)
        self._inlines.append(inline)

    def __len__(self) -> int:
        return len(self._keys)

    def columns(self, paths: Iterable[tuple[bytes, bytes]]) -> dict[str, arrow_ipc.Column]:
        """The rows. `paths` has for each file, in the order they were added, its directory and name.

        Directories are `/`-separated, relative to the shard. They and all names in them are unique.
        """
        tree = _Tree(len(self))
        for directory, name in paths:
            tree.add(directory, name)
        nodes, parents, spans = tree.lay_out()
        if len(nodes) > ROWS_MAX:
            raise FormatError(f"{len(nodes)} files in one shard; at most {ROWS_MAX} fit")
        files = np.frombuffer(self._numbers, np.int64).reshape(len(self), len(_NUMBER_COLUMNS))
        directories = np.array([(DIRECTORY, NO_SAMPLE, 0, first, count, 0, 0) for first, count in spans], np.int64)
        keys, inlines = self._keys + [b""] * len(spans), self._inlines + [b""] * len(spans)
        columns: dict[str, arrow_ipc.Column] = {
            "name": arrow_ipc.BinaryColumn.of(tree.names[node] for node in nodes),
            "parent": np.array(parents, np.uint32),
            "key": arrow_ipc.BinaryColumn.of(keys[node] for node in nodes),
            "inline": arrow_ipc.BinaryColumn.of(inlines[node] for node in nodes),
        }
        order = np.array(nodes)
        columns["order"] = np.argsort(order).astype(np.uint32)
        for i, column in enumerate(_NUMBER_COLUMNS):
            columns[column] = np.concatenate((files[:, i], directories[:, i]))[order].astype(_SCHEMA[column])
        return columns


class _Tree:
    """The directories of a view. Its nodes are numbers: files first, in the order they come, then directories."""

    def __init__(self, files: int) -> None:
        self.names: list[bytes] = []
        self._files = files
        self._directory_names = [b""]
        self._children: dict[bytes, array[int]] = {b"": array("I")}

    def add(self, directory: bytes, name: bytes) -> None:
        missing = []
        while (children := self._children.get(directory)) is None:
            missing.append(directory)
            directory = directory.rpartition(b"/")[0]
        for path in reversed(missing):
            children.append(self._files + len(self._directory_names))
            children = self._children[path] = array("I")
            self._directory_names.append(path.rpartition(b"/")[2])
        children.append(len(self.names))
        self.names.append(name)

    def lay_out(self) -> tuple[list[int], list[int], list[tuple[int, int]]]:
        """For each row its node and the row of its parent; for each directory its first child's row, and how many."""
        self.names += self._directory_names
        lists = list(self._children.values())
        spans = [(0, 0)] * len(lists)
        nodes, parents = [self._files], [0]
        for row, node in enumerate(nodes):  # which grow meanwhile: level by level
            if node >= self._files:
                children = sorted(lists[node - self._files], key=self.names.__getitem__)
                spans[node - self._files] = len(nodes), len(children)
                nodes += children
                parents += [row] * len(children)
        return nodes, parents, spans


def write_catalog(
    path: str, tables: Mapping[str, Mapping[str, arrow_ipc.Column]], kinds: Sequence[Kind], facts: Facts
) -> None:
    """Write a catalog, atomically. `kinds` excludes the directory, so an entry's kind 1 is `kinds[0]`."""
    told = {"version": VERSION, "views": list(tables), "kinds": [asdict(kind) for kind in kinds], **asdict(facts)}
    with atomic_file(path) as file:
        for piece in arrow_ipc.build_file(_SCHEMA, tables.values(), {"touchfs": json.dumps(told)}):
            file.write(piece)


class Table:
    """One view of one shard. All accessors take a row that came from this table."""

    __slots__ = (
        "_data",
        "_files",
        "_inline",
        "_keys",
        "_starts",
        "kind",
        "length",
        "offset",
        "order",
        "ordinal",
        "parent",
        "part",
        "rows",
        "size",
        "suffix",
    )

    def __init__(self, batch: arrow_ipc.Batch) -> None:
        def numbers(column: str) -> memoryview[int]:
            array = batch.columns[column]
            if not isinstance(array, np.ndarray) or array.dtype != np.dtype(_SCHEMA[column]):
                raise FormatError(f"column {column!r} of the catalog has another type")
            return _view(array)

        def texts(column: str) -> arrow_ipc.BinaryColumn:
            array = batch.columns[column]
            if not isinstance(array, arrow_ipc.BinaryColumn):
                raise FormatError(f"column {column!r} of the catalog has another type")
            return array

        names = texts("name")
        self.rows = batch.rows
        self._starts = _view(names.offsets)
        self._data = names.data
        self._keys = texts("key")
        self._inline = texts("inline")
        self.parent = numbers("parent")
        self.kind = numbers("kind")
        self.ordinal = numbers("ordinal")
        self.part = numbers("part")
        self.offset = numbers("offset")
        self.length = numbers("length")
        self.size = numbers("size")
        self.suffix = numbers("suffix")
        self.order = numbers("order")
        # Of samples: the report, which is of none, and directories come last.
        self._files = bisect_left(self.order, NO_SAMPLE, key=self.ordinal.__getitem__)

    def name(self, row: int) -> bytes:
        return bytes(self._data[self._starts[row] : self._starts[row + 1]])

    def path(self, row: int) -> bytes:
        """The path of a row from the view's directory of the shard, which is row 0."""
        components = []
        while row:
            components.append(self.name(row))
            row = self.parent[row]
        return b"/".join(reversed(components))

    def key(self, row: int) -> str:
        """The raw key of a file's sample, or what we named the sample. What is not UTF-8 in it as in `os.fsdecode`."""
        key = self._keys[row] or self.path(row)[: -self.suffix[row]]
        return key.decode("utf-8", "surrogateescape")

    def own_key(self, row: int) -> bytes:
        """The raw key of a file's sample as it is kept; empty where we named the sample."""
        return self._keys[row]

    def files(self, ordinal: int) -> list[int]:
        """The rows of a sample's files, as the view has them."""
        order, ordinals = self.order, self.ordinal
        # Nearly always all samples have as many files.
        first = ordinal * self._files // (ordinals[order[self._files - 1]] + 1) if self._files else 0
        if (
            first >= self._files
            or ordinals[order[first]] != ordinal
            or (first and ordinals[order[first - 1]] == ordinal)
        ):
            first = bisect_left(order, ordinal, key=ordinals.__getitem__)
        last = first
        while last < self._files and ordinals[order[last]] == ordinal:
            last += 1
        return list(order[first:last])

    def inline(self, row: int) -> bytes:
        return self._inline[row]

    def children(self, row: int) -> range:
        """The rows in a directory, in name order."""
        first = self.offset[row]
        return range(first, first + self.length[row])

    def find(self, row: int, name: bytes) -> int | None:
        """The child of a directory with this name."""
        starts, data = self._starts, self._data
        low = self.offset[row]
        high = end = low + self.length[row]
        while low < high:
            middle = (low + high) // 2
            if bytes(data[starts[middle] : starts[middle + 1]]) < name:
                low = middle + 1
            else:
                high = middle
        return low if low < end and self.name(low) == name else None


def _view(array: NDArray[Any]) -> memoryview[int]:
    """The same numbers as a memoryview, which gives ints at a quarter of NumPy's time."""
    if not array.flags.aligned:
        raise FormatError("a column of the catalog is not aligned")
    return array.data


class Catalog:
    """A mapped catalog. The file is replaced by rename only, so what is mapped stays as it was."""

    __slots__ = ("facts", "kinds", "path", "tables")

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            with open(path, "rb") as file:
                size = os.fstat(file.fileno()).st_size
                mapping = mmap.mmap(file.fileno(), size, prot=mmap.PROT_READ) if size else b""
        except FileNotFoundError:
            raise ChangedError("the catalog was removed: index the dataset again", path=path) from None
        except OSError as error:
            raise SourceError(error.strerror or str(error), path=path) from error
        try:
            parsed = arrow_ipc.parse_file(memoryview(mapping))
            told = json.loads(parsed.metadata["touchfs"])
            if told.pop("version") != VERSION:
                raise ChangedError("the catalog is of another version of touchfs: index the dataset again", path=path)
            self.tables = {view: Table(batch) for view, batch in zip(told.pop("views"), parsed.batches, strict=True)}
            self.kinds = [Kind(**kind) for kind in told.pop("kinds")]
            files = {name: FileIdentity(**identity) for name, identity in told.pop("files").items()}
            self.facts = Facts(files=files, **told)
        except FormatError as error:
            raise FormatError(f"{error.message}: index with --force", path=path, offset=error.offset) from error
        except (AttributeError, IndexError, KeyError, RecursionError, TypeError, ValueError) as error:
            raise FormatError(f"not a touchfs catalog: index with --force ({error!r})", path=path) from error
