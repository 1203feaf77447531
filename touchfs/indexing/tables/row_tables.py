"""Make the tables of a catalog for a shard that is a table, from arrays: a million rows take some seconds.

If keys of rows repeat, have directories or need quoting, names are assigned as for samples: this takes some times as
long.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from touchfs import names, progress
from touchfs.catalog.catalog import KINDS_MAX, FileKind, TableBuilder, encode_key
from touchfs.catalog.columns import TableColumns
from touchfs.catalog.key_columns import key_columns
from touchfs.catalog.key_endings import Endings, endings_of
from touchfs.catalog.row_columns import FileArrays, can_be_derived, few_files, row_columns
from touchfs.catalog.row_keys import RowKeys
from touchfs.catalog.table import NO_SAMPLE
from touchfs.errors import FormatError
from touchfs.form.plain import INLINE
from touchfs.form.tables.row import pack_ordinal
from touchfs.indexing.report import SampleLines, report_text
from touchfs.indexing.tables.paths import beside, within
from touchfs.shard.tables.rows import CellKind, ColumnFiles, RowBatch, TableRows, WholeColumn

_REPORT = "ERROR.txt"
# The view of whole columns, which only tables have.
COLUMNS = "columns"


class RowTables:
    """The tables of one shard. `add` gets its batches of rows in order."""

    seconds = 0.0
    timed = segments = 0

    def __init__(self, shard: TableRows, *, full: bool) -> None:
        self._shard = shard
        self._full = full
        self.samples = len(shard)
        self.labels = shard.labels
        # Until rows are read, the sizes of their JSON are not known: `index --full` is not done yet.
        self.unmeasured = 0 if full else self.samples
        self._problems = SampleLines()
        self._columns: list[list[ColumnFiles]] = []
        keys: list[RowKeys] = []
        for batch in self._batches():
            self._add(batch)
            keys += [batch.keys] if batch.keys is not None else []
        self._keys = RowKeys.joined(keys) if keys else None
        self._kinds = _Kinds(self._columns)
        self._files = self._arrays()
        self._whole = sorted(shard.whole_columns(), key=lambda column: column.name)

    def _batches(self) -> Iterator[RowBatch]:
        ordinal = 0
        while ordinal < self.samples:
            batch = self._shard.batch_of(ordinal, full=self._full)
            yield batch
            ordinal = batch.first + batch.rows

    def _add(self, batch: RowBatch) -> None:
        if not batch.rows:
            raise FormatError("a batch of no rows")
        self._columns.append(list(batch.columns))
        lines: dict[int, list[str]] = {}
        for ordinal, problem in batch.problems:
            lines.setdefault(ordinal, []).append(problem)
        for ordinal, problems in lines.items():
            key = None if batch.keys is None else batch.keys[ordinal - batch.first]
            self._problems.add(ordinal, key or f"{ordinal:08d}", "; ".join(problems))

    def report(self, path: str, problems: Sequence[str], remarks: Sequence[str]) -> str:
        """The text of ERROR.txt from the problems and remarks of the shard; "" if nothing is wrong."""
        return report_text(path, self.samples, problems, remarks, self._problems, SampleLines())

    @property
    def damaged(self) -> int:
        """The number of samples with problems."""
        return self._problems.count

    @property
    def kinds(self) -> list[FileKind]:
        """The kinds of files."""
        return self._kinds.described()

    @property
    def endings(self) -> Endings:
        """See `Facts.endings`."""
        keys = [] if self._keys is None else self._keys.with_dots
        return endings_of(keys, [kind.extension for _, kind in self._kinds.all])

    def _arrays(self) -> FileArrays:
        if not self._columns:
            nothing = np.zeros((0, 1), np.int64)
            return FileArrays(nothing, nothing, nothing, nothing)

        def joined(name: str) -> NDArray[np.int64]:
            stacked = [np.stack([getattr(column, name) for column in columns], axis=1) for columns in self._columns]
            return np.concatenate(stacked)

        kind = np.concatenate(
            [
                np.stack([self._kinds.numbers(place)[column.kind] for place, column in enumerate(columns)], axis=1)
                for columns in self._columns
            ]
        )
        detail = None
        if any(column.details is not None for columns in self._columns for column in columns):
            detail = np.empty(kind.shape, object)
            first = 0
            for columns in self._columns:
                rows = len(columns[0].kind)
                for place, column in enumerate(columns):
                    detail[first : first + rows, place] = _details(column, first)
                first += rows
        return FileArrays(kind, joined("offset"), joined("length"), joined("size"), detail)

    def columns(self, report: str) -> dict[str, TableColumns]:
        """The tables by view. A `report` that is not empty becomes `ERROR.txt`."""
        nested, text = self._shard.is_nested, report.encode("utf-8", "replace")
        if self._keys is None and can_be_derived(self._files.kind, is_nested=nested):
            kind = (self._kinds.add_report(), text) if report else None
            shards = row_columns(self._files, self._kinds.names, is_nested=nested, report=kind)
            whole = [self._kinds.whole(column) for column in self._whole]
            return {"shards": shards, "segments": few_files([], shards), COLUMNS: few_files(whole, shards)}
        self._kinds.forget_names()
        kinds = [kind for _, kind in self._kinds.all]
        kind = (self._kinds.add_report(), text) if report else None
        keyed = None
        if self._keys is not None:
            keyed = key_columns(self._files, self._keys, kinds, is_nested=nested, report=kind)
        columns = TableBuilder()
        for column in self._whole:
            suffix = len(column.name) - column.name.rfind(b".")
            columns.add(self._kinds.whole(column), NO_SAMPLE, 0, 0, 0, 0, suffix)
        return {
            "shards": self._named(kind) if keyed is None else keyed,
            "segments": TableBuilder().columns(()),
            COLUMNS: columns.columns((b"", column.name) for column in self._whole),
        }

    def _named(self, report: tuple[int, bytes] | None) -> TableColumns:
        """The table of rows whose names depend on each other: each file is added by itself."""
        table, nested, files = TableBuilder(), self._shard.is_nested, self._files
        own: list[str | None] = [None] * self.samples if self._keys is None else self._keys.array.to_pylist()
        keys = [key or f"{ordinal:08d}" for ordinal, key in enumerate(own)]
        endings = [b"", *(kind.ending for _, kind in self._kinds.all)]
        by_ordinal = [False, *(kind.by_ordinal for _, kind in self._kinds.all)]
        each = zip(files.kind.tolist(), files.offset.tolist(), files.length.tolist(), files.size.tolist(), strict=True)
        extensions: list[tuple[str | None, ...]] = []
        for ordinal, (kinds, offsets, lengths, sizes) in progress.each(enumerate(each)):
            key = encode_key(own[ordinal] or "")
            for place, kind in enumerate(kinds):
                if kind:
                    detail = b"" if files.detail is None else files.detail[ordinal, place]
                    detail = pack_ordinal(ordinal) if by_ordinal[kind] else detail
                    suffix = len(endings[kind])
                    table.add(kind, ordinal, 0, offsets[place], lengths[place], sizes[place], suffix, key, detail)
            extensions.append(tuple(self._kinds.all[kind - 1][1].extension for kind in kinds if kind))
        own_extensions = [(None,)] * len(keys) if nested else extensions
        last: list[tuple[bytes, bytes]] = []
        if report is not None:  # named like a first sample, so that no sample takes its name; but last in the table
            number, text = report
            table.add(number, NO_SAMPLE, 0, 0, 0, len(text), len(".txt"), b"", text)
            assigned = names.assign(["ERROR", *keys], [("txt",), *own_extensions])
            directory, (name,) = next(assigned)
            last = [(directory, name)]
        else:
            assigned = names.assign(keys, own_extensions)
        paths = within(assigned, extensions) if nested else beside(assigned)
        return table.columns(chain(paths, last))


class _Kinds:
    """The kinds of the files of a table, numbered in the order of its columns from 1 on."""

    def __init__(self, columns: Sequence[Sequence[ColumnFiles]]) -> None:
        # The lists of kinds of all batches are the same objects, and complete now.
        self.all: list[tuple[str, CellKind]] = []
        self._first: list[int] = []
        self._counts: list[int] = []
        self._has_names = True
        self._has_report = False
        self._whole: list[WholeColumn] = []
        for column in columns[-1] if columns else ():
            self._first.append(len(self.all) + 1)
            self._counts.append(len(column.kinds))
            self.all += [(column.name, kind) for kind in column.kinds]
        if len(self.all) >= KINDS_MAX:
            raise FormatError(f"over {KINDS_MAX} kinds of files in one shard: are the names in it right?")

    def numbers(self, place: int) -> NDArray[np.int64]:
        """The numbers of a column's kinds, and 0 for `NO_FILE`, which is the last index."""
        first, count = self._first[place], self._counts[place]
        return np.array([*range(first, first + count), 0])

    @property
    def names(self) -> list[str]:
        """The names of the kinds (`FileKind.name`)."""
        return [kind.name for kind in self.described()]

    def add_report(self) -> int:
        """The number of the kind of `ERROR.txt`."""
        self._has_report = True
        return len(self.all) + 1

    def whole(self, column: WholeColumn) -> int:
        """The number of the kind of a whole column, which is new."""
        self._whole.append(column)
        return len(self.all) + self._has_report + len(self._whole)

    def forget_names(self) -> None:
        """Leave the names of kinds away: the catalog stores those of all files."""
        self._has_names = False

    def described(self) -> list[FileKind]:
        """The kinds as a catalog stores them."""
        described = [
            FileKind(column, kind.source, str(kind.form), name=self._name(kind.ending)) for column, kind in self.all
        ]
        if self._has_report:
            described.append(FileKind("error", "", str(INLINE), name=_REPORT if self._has_names else ""))
        for column in self._whole:
            name = os.fsdecode(column.name) if self._has_names else ""
            described.append(FileKind(column.column, column.source, str(column.form), name=name))
        return described

    def _name(self, ending: bytes) -> str:
        if not self._has_names:
            return ""
        return "/" + ending.decode("utf-8", "surrogateescape")


def _details(column: ColumnFiles, first: int) -> list[bytes]:
    rows = range(len(column.kind))
    by_ordinal = [kind.by_ordinal for kind in column.kinds]
    if any(by_ordinal):
        return [pack_ordinal(first + row) for row in rows]
    return [b"" for _ in rows] if column.details is None else list(column.details)
