"""The catalog of a shard: tables of every file and directory that its views show, mapped and never loaded.

A catalog is an uncompressed Arrow IPC file with one record batch per view. `touchfs.catalog.table` describes the
columns, and `touchfs.catalog.columns` decides which of them are stored. The metadata key `touchfs` holds the omitted
columns and facts about the whole shard, as JSON.
"""

from __future__ import annotations

import json
import operator
import struct
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from touchfs.catalog.columns import TableColumns, omit
from touchfs.catalog.derived import DERIVED, Implied
from touchfs.catalog.directory_tree import DirectoryTree
from touchfs.catalog.key_endings import NO_ENDINGS, Endings, parse_endings
from touchfs.catalog.row_table import RowTable
from touchfs.catalog.table import DIRECTORY, IN_PATH, NO_SAMPLE, SHOWN, STORED, UNKEYED, Table
from touchfs.errors import ChangedError, FormatError, NotFoundError, map_os_errors
from touchfs.format.arrow.build import build_file
from touchfs.format.arrow.mapped_columns import BinaryColumn, Column
from touchfs.format.arrow.mapped_file import parse_file
from touchfs.names import plain_path
from touchfs.posix.trust import atomic_own_file, open_trusted
from touchfs.source.fingerprint import Files, build_files, parse_files
from touchfs.source.mapped import map_file

VERSION = 6
ROWS_MAX = 2**32 - 1
KINDS_MAX = 2**16 - 1
# Length of the JSON of a catalog: that of the largest number of kinds has 10 MB.
HEADER_MAX = 1 << 25


@dataclass(frozen=True, slots=True)
class FileKind:
    """A kind of file: the field of a sample that it shows, the shard's file that holds it (`source`), and its form.

    `rate` in Hz and `channels` are those of recordings whose lengths are in the column `frames`; 0 for all other files.
    `name` is the path of its files if the catalog does not store names: a slash at its beginning stands for the ordinal
    in 8 digits.
    """

    field: str
    source: str
    form: str
    note: str = ""
    rate: int = 0
    channels: int = 0
    name: str = ""


_NUMBER_COLUMNS = ("kind", "ordinal", "part", "offset", "length", "size", "frames", "suffix")
_BLOCK = 1 << 14
_NUMBERS = struct.Struct(f"{len(_NUMBER_COLUMNS)}q")


@dataclass(frozen=True, slots=True)
class Labels:
    """The column of a table with class labels: the file of the shard, the number of the column, and the names of the
    labels by their values.
    """

    source: str
    column: int
    names: tuple[str, ...]


def _parse_labels(value: Any) -> Labels:
    """Labels from their JSON value. Raises TypeError or ValueError."""
    source, column, names = value["source"], operator.index(value["column"]), tuple(value["names"])
    if column < 0 or not all(isinstance(text, str) for text in (source, *names)):
        raise ValueError("no labels")
    return Labels(source, column, names)


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts about a whole shard that its catalog stores. `size` and `index_size` are bytes; `samples` and `damaged`
    count samples, `segments` the segments of all samples. `report` is the text of ERROR.txt, empty if the shard has no
    damage.

    `seconds` is the total duration of the recordings of `timed` samples; the duration of others is not known. Those of
    `unmeasured` samples can be found: indexing looked at no more than their headers. With
    `keys_are_paths`, samples are shown under `names.plain_path` of their keys. `digest` is the digest of pieces of the
    files (`touchfs.catalog.ends`), or empty. `labels` are the class labels of a table.
    """

    files: Files
    samples: int
    seconds: float
    size: int
    index_size: int
    damaged: int
    report: str
    keys_are_paths: bool = False
    timed: int = 0
    digest: str = ""
    endings: Endings = NO_ENDINGS
    segments: int = 0
    unmeasured: int = 0
    labels: Labels | None = None


# The types of facts in a header. A float may be written as an integer by another tool.
_FACT_TYPES: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("samples", "size", "index_size", "damaged", "timed", "segments", "unmeasured"), (int,)),
    **dict.fromkeys(("report", "digest"), (str,)),
    "seconds": (float, int),
    "keys_are_paths": (bool,),
}


def encode_key(key: str) -> bytes:
    """Encode a raw key as catalogs store it: escaped bytes as they were, a lone surrogate as UTF-8 would encode it."""
    try:
        return key.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return key.encode("utf-8", "surrogatepass")


class TableBuilder:
    """Collects the files of one view."""

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
        self, kind: int, ordinals: range, spans: NDArray[np.int64], suffix: int, keys: Sequence[bytes]
    ) -> None:
        """Add a file for each of these samples, as `add` does: the range of bytes that `spans` has, an array of
        offsets and sizes of shape (samples, 2).
        """
        numbers = np.zeros((len(spans), len(_NUMBER_COLUMNS)), np.int64)
        for name, values in (
            ("kind", kind),
            ("ordinal", ordinals),
            ("offset", spans[:, 0]),
            ("length", spans[:, 1]),
            ("size", spans[:, 1]),
            ("suffix", suffix),
        ):
            numbers[:, _NUMBER_COLUMNS.index(name)] = values
        self._numbers += numbers.tobytes()
        self._keys += keys
        self._ends.extend(repeat(len(self._inlines), len(spans)))

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


def write_catalog(path: str, tables: Mapping[str, TableColumns], kinds: Sequence[FileKind], facts: Facts) -> None:
    """Write a catalog atomically. `kinds` excludes the directory, so kind 1 in a table is `kinds[0]`."""
    schema, stored, omitted = omit(list(tables.values()))
    header = {
        "version": VERSION,
        # By view, the number of children of its directory: their parent is row 0, which is also its own parent.
        "views": {view: _top(table) for view, table in tables.items()},
        "omitted": omitted,
        # No other catalogs than those of tables have names of kinds.
        "kinds": [{name: value for name, value in asdict(kind).items() if name != "name" or value} for kind in kinds],
        **asdict(facts),
        "files": build_files(facts.files),
    }
    if facts.labels is None:  # as in catalogs from before there were tables
        del header["labels"]
    with atomic_own_file(path) as file:
        for piece in build_file(schema, stored, {"touchfs": json.dumps(header)}):
            file.write(piece)


def _top(table: TableColumns) -> int:
    """The number of children of a view's directory, which is row 0."""
    if isinstance(table["parent"], Implied):  # what is of no sample is in it, and each sample has a directory
        return int(np.count_nonzero(np.asarray(table["ordinal"]) == NO_SAMPLE)) - 1
    return int(np.count_nonzero(np.asarray(table["parent"]) == 0)) - 1


class _TablesByView(dict[str, Table]):
    """The tables of a catalog by view. Raises FormatError for a view that it should have, and has not."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path

    def __missing__(self, view: str) -> Table:
        raise FormatError(f"the catalog has no table of {view}: index with --force", path=self._path)


class Catalog:
    """A mapped catalog. The file is only ever replaced by a rename, so the mapping does not change.

    `shard` is the path of its shard; its owner is trusted if the catalog is beside the data. Raises ChangedError if the
    catalog is missing or of another version, FormatError if it is damaged, and UntrustedError or SourceError.
    """

    __slots__ = ("facts", "kinds", "path", "tables")

    def __init__(self, path: str, shard: str | None = None) -> None:
        self.path = path
        try:
            with map_os_errors(path), open(open_trusted(path, shard), "rb") as file:
                data = map_file(file.fileno())
        except NotFoundError:
            raise ChangedError("the catalog was removed: index the dataset again", path=path) from None
        try:
            parsed = parse_file(data)
            if len(parsed.metadata["touchfs"]) > HEADER_MAX:
                raise ValueError("its header is too long")
            header = json.loads(parsed.metadata["touchfs"])
            if header.pop("version") != VERSION:
                raise ChangedError("the catalog is of another version of touchfs: index the dataset again", path=path)
            tops = {view: operator.index(top) for view, top in header.pop("views").items()}
            views = zip(tops.items(), parsed.batches, strict=True)
            omitted = header.pop("omitted")
            self.kinds = [FileKind(**kind) for kind in header.pop("kinds")]
            for kind in self.kinds:
                numbers = all(type(number) is int and number >= 0 for number in (kind.rate, kind.channels))
                texts = kind.field, kind.source, kind.form, kind.note, kind.name
                if not numbers or not all(isinstance(text, str) for text in texts):
                    raise TypeError("a kind does not have strings and two numbers")
            files = parse_files(header.pop("files"))
            endings = parse_endings(header.pop("endings"))
            labels = _parse_labels(header.pop("labels")) if "labels" in header else None
            if not all(type(header[name]) in types for name, types in _FACT_TYPES.items()):
                raise TypeError("a fact is of another type")
            self.facts = Facts(files=files, **header, endings=endings, labels=labels)
            paths = self.facts.keys_are_paths
            names = [kind.name for kind in self.kinds]
            table = RowTable if omitted.get("name") == DERIVED["name"] else Table
            self.tables = _TablesByView(path)
            self.tables.update((view, table(batch, top, omitted, paths, path, names)) for (view, top), batch in views)
        except FormatError as error:
            raise FormatError(f"{error.message}: index with --force", path=path, offset=error.offset) from error
        except (AttributeError, IndexError, KeyError, RecursionError, TypeError, ValueError) as error:
            raise FormatError(f"not a touchfs catalog: index with --force ({error!r})", path=path) from error
