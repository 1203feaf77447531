"""Make the tables of a catalog for a shard that is a table, from arrays: a million rows take some seconds.

If keys of rows repeat, have directories or need quoting, names are assigned as for samples: this takes some times as
long.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from touchfs.catalog.catalog import FileKind
from touchfs.catalog.columns import TableColumns
from touchfs.catalog.key_endings import Endings, endings_of
from touchfs.catalog.rows.key_columns import key_columns
from touchfs.catalog.rows.row_columns import FileArrays, can_be_derived, few_files, row_columns
from touchfs.catalog.rows.row_keys import RowKeys
from touchfs.catalog.table import COLUMNS, NO_SAMPLE
from touchfs.catalog.table_builder import TableBuilder, encode_key
from touchfs.core import names, progress
from touchfs.core.errors import FormatError
from touchfs.form.ordinals import pack_ordinal
from touchfs.indexing.report import SampleLines, report_text
from touchfs.indexing.tables.paths import beside, within
from touchfs.indexing.tables.row_kinds import RowKinds
from touchfs.indexing.tables.row_lengths import RowLengths
from touchfs.registry.contents import FieldContents
from touchfs.tables.rows.rows import ColumnFiles, RowBatch, TableRows


class RowTables:
    """The tables of one shard. With `contents`, its rows are read, and its recordings are measured."""

    segments = 0
    has_contents = True

    def __init__(self, shard: TableRows, contents: FieldContents | None = None) -> None:
        self._shard = shard
        self._lengths = None if contents is None else RowLengths(contents)
        self.samples = len(shard)
        self.labels, self.classes = shard.labels, shard.classes
        self._problems, self._remarks = SampleLines(), SampleLines()
        self._columns: list[list[ColumnFiles]] = []
        keys: list[RowKeys] = []
        for batch in self._batches():
            self._add(batch)
            keys += [batch.keys] if batch.keys is not None else []
        self._keys = RowKeys.joined(keys) if keys else None
        self._kinds = RowKinds(self._columns)
        self._files = self._measured(self._arrays())
        self._whole = sorted(shard.whole_columns(), key=lambda column: column.name)

    def _batches(self) -> Iterator[RowBatch]:
        ordinal = 0
        while ordinal < self.samples:
            batch = self._shard.batch_of(ordinal, full=self._lengths is not None)
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
        for ordinal, problem in () if self._lengths is None else self._lengths.add(batch):
            key = None if batch.keys is None else batch.keys[ordinal - batch.first]
            self._remarks.add(ordinal, key or f"{ordinal:08d}", problem)

    @property
    def unmeasured(self) -> int:
        """See `Facts`. Until rows are read, the sizes of their JSON are not known: `index --full` is not done yet."""
        return self.samples if self._lengths is None else self._lengths.unmeasured

    @property
    def measured(self) -> int:
        """See `Facts`."""
        return self.samples - self.unmeasured

    @property
    def timed(self) -> int:
        """The number of recordings of known length."""
        return 0 if self._lengths is None else self._lengths.timed

    @property
    def seconds(self) -> float:
        """The sum of their lengths."""
        return 0.0 if self._lengths is None else self._lengths.seconds

    def reports(self, path: str, problems: Sequence[str], remarks: Sequence[str]) -> dict[str, str]:
        """The text of ERROR.txt by view, from the problems and remarks of the shard; "" if nothing is wrong."""
        return {"shards": report_text(path, self.samples, problems, remarks, self._problems, self._remarks)}

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
        return endings_of(keys, [kind.extension for kind in self._kinds.cells])

    def _arrays(self) -> FileArrays:
        if not self._columns:
            return FileArrays.of_no_rows()

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
        frames = np.broadcast_to(np.int64(0), kind.shape)
        return FileArrays(kind, joined("offset"), joined("length"), joined("size"), frames, detail)

    def _measured(self, files: FileArrays) -> FileArrays:
        """The files with the lengths of their recordings, whose kinds have their rates."""
        if self._lengths is None or not self._columns:
            return files
        for variant, rows, places in self._lengths.variants():
            before = files.kind[rows, places]
            for number in np.unique(before):
                chosen = before == number
                files.kind[rows[chosen], places[chosen]] = self._kinds.add(int(number), variant)
        return replace(files, frames=self._lengths.frames(files.kind.shape))

    def columns(self, reports: Mapping[str, str]) -> dict[str, TableColumns]:
        """The tables by view. A report that is not empty becomes `ERROR.txt`."""
        report = reports["shards"]
        nested, text = self._shard.is_nested, report.encode("utf-8", "replace")
        if self._keys is None and can_be_derived(self._files.kind, is_nested=nested):
            kind = (self._kinds.add_report(), text) if report else None
            shards = row_columns(self._files, self._kinds.names, is_nested=nested, report=kind)
            whole = [self._kinds.whole(column) for column in self._whole]
            return {"shards": shards, "segments": few_files([], shards), COLUMNS: few_files(whole, shards)}
        self._kinds.forget_names()
        kinds = self._kinds.cells
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
        cells = self._kinds.cells
        endings, by_ordinal = [b"", *(cell.ending for cell in cells)], [False, *(cell.by_ordinal for cell in cells)]
        each = zip(
            *(part.tolist() for part in (files.kind, files.offset, files.length, files.size, files.frames)), strict=True
        )
        extensions: list[tuple[str | None, ...]] = []
        for ordinal, (kinds, offsets, lengths, sizes, frames) in progress.each(enumerate(each)):
            key = encode_key(own[ordinal] or "")
            for place, kind in enumerate(kinds):
                if kind:
                    detail = b"" if files.detail is None else files.detail[ordinal, place]
                    detail = pack_ordinal(ordinal) if by_ordinal[kind] else detail
                    suffix = len(endings[kind])
                    numbers = offsets[place], lengths[place], sizes[place], suffix
                    table.add(kind, ordinal, 0, *numbers, key, detail, frames[place])
            extensions.append(tuple(cells[kind - 1].extension for kind in kinds if kind))
        own_extensions = [(None,)] * len(keys) if nested else extensions
        last: list[tuple[bytes, bytes]] = []
        if report is not None:  # named like a first sample, so that no sample takes its name; but last in the table
            number, text = report
            table.add(number, NO_SAMPLE, 0, 0, 0, len(text), len(f".{names.REPORT_EXTENSION}"), b"", text)
            assigned = names.assign([names.REPORT_STEM, *keys], [(names.REPORT_EXTENSION,), *own_extensions])
            directory, (name,) = next(assigned)
            last = [(directory, name)]
        else:
            assigned = names.assign(keys, own_extensions)
        paths = within(assigned, extensions) if nested else beside(assigned)
        return table.columns(chain(paths, last))


def _details(column: ColumnFiles, first: int) -> list[bytes]:
    rows = range(len(column.kind))
    by_ordinal = [kind.by_ordinal for kind in column.kinds]
    if any(by_ordinal):
        return [pack_ordinal(first + row) for row in rows]
    return [b"" for _ in rows] if column.details is None else list(column.details)
