"""The catalog of a shard: tables of every file and directory that its views show, mapped and never loaded.

A catalog is an uncompressed Arrow IPC file with one record batch per view. `touchfs.catalog.table` describes the
columns, and `touchfs.catalog.columns` decides which of them are stored. The metadata key `touchfs` holds the omitted
columns and facts about the whole shard, as JSON. The file has a checksum (`touchfs.format.arrow.sealed`), which is
compared each time it is mapped: 10 ms for a million files, and 4 µs of the millisecond that a small catalog takes.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from touchfs.catalog.columns import TableColumns, omit
from touchfs.catalog.derived import DERIVED, Implied
from touchfs.catalog.key_endings import NO_ENDINGS, Endings, parse_endings
from touchfs.catalog.kind_table import KindTable
from touchfs.catalog.row_table import RowTable
from touchfs.catalog.table import NO_SAMPLE, Table
from touchfs.core.control_characters import has_control
from touchfs.core.errors import ChangedError, FormatError, NotFoundError, map_os_errors
from touchfs.core.names import shown_extension
from touchfs.form.plain import INLINE
from touchfs.format.arrow.sealed import build_sealed, parse_sealed
from touchfs.posix.trust import atomic_own_file, open_trusted
from touchfs.source.fingerprint import Files, build_files, parse_files
from touchfs.source.mapped import map_file

VERSION = 11
# The field of reports of damaged samples
REPORT_FIELD = "error"
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


@dataclass(frozen=True, slots=True)
class Labels:
    """The column of a table with class labels: the file of the shard, the number of the column, and the names of the
    labels by their values.
    """

    source: str
    column: int
    names: tuple[str, ...]


def _parse_labels(value: Any) -> Labels:
    source, column, names = value["source"], operator.index(value["column"]), tuple(value["names"])
    if column < 0 or not all(isinstance(text, str) for text in (source, *names)):
        raise ValueError("no labels")
    return Labels(source, column, names)


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts about a whole shard that its catalog stores. `size` and `index_size` are bytes; `samples` and `damaged`
    count samples, `segments` the segments of all samples. `report` is the text of ERROR.txt in `shards/`, and
    `report_of_segments` that in `segments/`; empty if nothing is wrong.

    `seconds` is the total duration of the recordings of `timed` samples; the duration of others is not known. Those of
    `unmeasured` samples can be found: indexing looked at no more than their headers. Those of `measured` samples were
    read. With `keys_are_paths`, samples are shown under `names.plain_path` of their keys. `regrouped` counts the files
    that once were in other samples. A catalog without `contents` is of what headers say, and what is in files was left
    unread: there may be more segments. `labels` are the class labels of a table; `classes` are the names of the classes
    of each column that has some. `base` identifies the catalog to which this one adds the files of overlays.
    """

    files: Files
    samples: int
    seconds: float
    size: int
    index_size: int
    damaged: int
    report: str
    report_of_segments: str = ""
    keys_are_paths: bool = False
    timed: int = 0
    endings: Endings = NO_ENDINGS
    segments: int = 0
    unmeasured: int = 0
    measured: int = 0
    regrouped: int = 0
    contents: bool = True
    labels: Labels | None = None
    classes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    base: str = ""


# The types of facts in a header. A float may be written as an integer by another tool.
_FACT_TYPES: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(
        ("samples", "size", "index_size", "damaged", "timed", "segments", "unmeasured", "measured", "regrouped"),
        (int,),
    ),
    "report": (str,),
    "report_of_segments": (str,),
    "seconds": (float, int),
    "keys_are_paths": (bool,),
    "contents": (bool,),
    "base": (str,),
}


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
    for name in ("labels", "classes", "base"):  # most catalogs have none
        if not header[name]:
            del header[name]
    with atomic_own_file(path) as file:
        for piece in build_sealed(schema, stored, {"touchfs": json.dumps(header)}):
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

    @property
    def of_overlays(self) -> frozenset[int]:
        """The values in the column `kind` of the files of overlays."""
        if not self.facts.base:
            return frozenset()
        inline = [(kind, number) for number, kind in enumerate(self.kinds, 1) if kind.form == str(INLINE)]
        return frozenset(number for kind, number in inline if not kind.source and kind.field != REPORT_FIELD)

    def __init__(self, path: str, shard: str | None = None) -> None:
        self.path = path
        try:
            with map_os_errors(path), open(open_trusted(path, shard), "rb") as file:
                data = map_file(file.fileno())
        except NotFoundError:
            raise ChangedError("the catalog was removed: index the dataset again", path=path) from None
        try:
            parsed = parse_sealed(data)
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
            classes = {name: tuple(names) for name, names in header.pop("classes", {}).items()}
            if not all(isinstance(name, str) for names in classes.values() for name in names):
                raise TypeError("a class has no name")
            header.setdefault("base", "")
            if not all(type(header[name]) in types for name, types in _FACT_TYPES.items()):
                raise TypeError("a fact is of another type")
            if has_control((header["report"] + header["report_of_segments"]).replace("\n", "")):
                raise ValueError("a report has control characters")
            self.facts = Facts(files=files, **header, endings=endings, labels=labels, classes=classes)
            paths = self.facts.keys_are_paths
            names = [kind.name for kind in self.kinds]
            self.tables = _TablesByView(path)
            for (view, top), batch in views:
                arguments = batch, top, omitted, paths, path, names
                if omitted.get("name") == DERIVED["name"]:
                    self.tables[view] = RowTable(*arguments)
                elif paths and view == "shards":
                    fields = [shown_extension(kind.field) for kind in self.kinds]
                    self.tables[view] = KindTable(*arguments, fields)
                else:
                    self.tables[view] = Table(*arguments)
        except FormatError as error:
            raise FormatError(f"{error.message}: index with --force", path=path, offset=error.offset) from error
        except (AttributeError, IndexError, KeyError, RecursionError, TypeError, ValueError) as error:
            raise FormatError(f"not a touchfs catalog: index with --force ({error!r})", path=path) from error
