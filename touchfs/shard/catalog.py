"""The catalog of a shard: every file and directory that its views show, as tables that are mapped and never loaded.

A catalog is an uncompressed Arrow IPC file with one record batch a view, all of one schema, a row a file or directory:

    name     one component of its path
    parent   the row of its directory
    kind     what it is: 0 is a directory, others number `Catalog.kinds`
    ordinal  the sample it shows, part: which piece of it (a segment's number)
    offset, length   where its bytes are in the kind's source; of a directory: its first child's row, and how many
    size     the file's size in bytes
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
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from touchfs.errors import ChangedError, FormatError, SourceError
from touchfs.format import arrow_ipc
from touchfs.source.atomic import atomic_file
from touchfs.source.local import FileIdentity

VERSION = 1
DIRECTORY = 0
NO_SAMPLE = 2**32 - 1
ROWS_MAX = 2**32 - 1

_SCHEMA = {
    "name": "binary",
    "parent": "uint32",
    "kind": "uint16",
    "ordinal": "uint32",
    "part": "uint32",
    "offset": "int64",
    "length": "int64",
    "size": "int64",
    "inline": "binary",
}


@dataclass(frozen=True, slots=True)
class Kind:
    """What files of one kind are: a field of a sample, the file of the shard it lies in, and its form."""

    field: str
    source: str
    form: str
    note: str = ""


class Entry(NamedTuple):
    """One file of a view, as a view tells it and a catalog keeps it. `offset` and `length` are of its bytes' extent."""

    kind: int
    ordinal: int
    part: int
    offset: int
    length: int
    size: int
    inline: bytes = b""


@dataclass(frozen=True, slots=True)
class Facts:
    """What a catalog says of its shard as a whole. `report` is the text of ERROR.txt, empty when all is well."""

    files: Mapping[str, FileIdentity]
    sample_rate: int | None
    samples: int
    seconds: float
    size: int
    index_size: int
    damaged: int
    report: str


class TableBuilder:
    """Collects the files of one view, in any order."""

    def __init__(self) -> None:
        self._names: list[bytes] = []
        self._entries: list[Entry] = []
        self._children: dict[bytes, list[tuple[bytes, int]]] = {b"": []}

    def add(self, directory: bytes, name: bytes, entry: Entry) -> None:
        """A file `directory/name`; directories are `/`-separated, relative to the shard, and made as needed."""
        self._directory(directory).append((name, len(self._entries)))
        self._entries.append(entry)

    def _directory(self, path: bytes) -> list[tuple[bytes, int]]:
        missing = []
        while (children := self._children.get(path)) is None:
            missing.append(path)
            path = path.rpartition(b"/")[0]
        for path in reversed(missing):
            children.append((path.rpartition(b"/")[2], -1))
            children = self._children[path] = []
        return children

    def columns(self) -> dict[str, NDArray[Any] | arrow_ipc.BinaryColumn]:
        """Lays the rows out. Empties the builder."""
        names, parents, order, spans = [b""], [0], [-1], {}
        queue = deque([(b"", 0)])
        while queue:
            path, row = queue.popleft()
            children = self._children.pop(path)
            children.sort()
            spans[row] = len(names), len(children)
            for name, i in children:
                if i < 0:
                    queue.append((path + b"/" + name if path else name, len(names)))
                names.append(name)
                parents.append(row)
                order.append(i)
        if len(names) > ROWS_MAX:
            raise FormatError(f"{len(names)} files in one shard; at most {ROWS_MAX} fit")
        self._entries.append(Entry(DIRECTORY, NO_SAMPLE, 0, 0, 0, 0))  # what order[row] == -1 takes
        numbers = np.array([entry[:-1] for entry in self._entries], dtype=np.int64)[np.array(order)]
        directories = np.fromiter(spans, dtype=np.int64)
        numbers[directories, 3:5] = np.array(list(spans.values()))
        columns: dict[str, NDArray[Any] | arrow_ipc.BinaryColumn] = {
            "name": arrow_ipc.BinaryColumn.of(names),
            "parent": np.array(parents, dtype=np.uint32),
            "inline": arrow_ipc.BinaryColumn.of(self._entries[i].inline for i in order),
        }
        for position, column in enumerate(Entry._fields[:-1]):
            columns[column] = numbers[:, position].astype(_SCHEMA[column])
        return columns


def write_catalog(path: str, views: Mapping[str, TableBuilder], kinds: Sequence[Kind], facts: Facts) -> None:
    """Write a catalog, atomically. `kinds` excludes the directory, so an entry's kind 1 is `kinds[0]`."""
    told = {
        "version": VERSION,
        "views": list(views),
        "kinds": [asdict(kind) for kind in kinds],
        **asdict(facts),
    }
    batches = [builder.columns() for builder in views.values()]
    with atomic_file(path) as file:
        for piece in arrow_ipc.build_file(_SCHEMA, batches, {"touchfs": json.dumps(told, ensure_ascii=True)}):
            file.write(piece)


class Table:
    """One view of one shard. All accessors take a row that came from this table."""

    __slots__ = ("_data", "_inline", "_starts", "kind", "length", "offset", "ordinal", "parent", "part", "rows", "size")

    def __init__(self, batch: arrow_ipc.Batch) -> None:
        def numbers(column: str) -> memoryview[int]:
            array = batch.columns[column]
            if not isinstance(array, np.ndarray) or array.dtype != np.dtype(_SCHEMA[column]):
                raise FormatError(f"column {column!r} of the catalog has another type")
            return array.data  # type: ignore[return-value]  # a memoryview gives ints, at a quarter of NumPy's time

        names, inline = batch.columns["name"], batch.columns["inline"]
        if not isinstance(names, arrow_ipc.BinaryColumn) or not isinstance(inline, arrow_ipc.BinaryColumn):
            raise FormatError("column 'name' or 'inline' of the catalog has another type")
        self._inline = inline
        self.rows = batch.rows
        self._starts: memoryview[int] = names.offsets.data  # type: ignore[assignment]
        self._data = names.data
        self.parent = numbers("parent")
        self.kind = numbers("kind")
        self.ordinal = numbers("ordinal")
        self.part = numbers("part")
        self.offset = numbers("offset")
        self.length = numbers("length")
        self.size = numbers("size")

    def name(self, row: int) -> bytes:
        return bytes(self._data[self._starts[row] : self._starts[row + 1]])

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
            file_ = arrow_ipc.parse_file(memoryview(mapping))
            told = json.loads(file_.metadata["touchfs"])
            if told["version"] != VERSION:
                raise ChangedError(f"the catalog is of version {told['version']}: index the dataset again", path=path)
            self.kinds = [Kind(**kind) for kind in told["kinds"]]
            files = {name: FileIdentity(**identity) for name, identity in told["files"].items()}
            names = Facts.__dataclass_fields__
            self.facts = Facts(**{name: files if name == "files" else told[name] for name in names})
            self.tables = {
                view: Table(batch) for view, batch in zip(told["views"], file_.batches, strict=True)
            }
        except FormatError as error:
            raise error.at(path) from error
        except (KeyError, TypeError, ValueError) as error:
            raise FormatError(f"not a touchfs catalog: {error!r}", path=path) from error
