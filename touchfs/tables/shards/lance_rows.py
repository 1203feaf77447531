"""The rows of a Lance dataset as samples.

Blobs are ranges of files of the dataset. All other cells are known to Lance only: their files have no size until they
are read. Of the data, only keys and the names that tell extensions are read, the first cells of each column whose
extension nothing else tells, and columns that may have nulls.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import closing
from functools import partial

import numpy as np
from numpy.typing import NDArray

from touchfs.catalog.rows.row_keys import RowKeys
from touchfs.core.extent import Memory, drive
from touchfs.core.progress import reached
from touchfs.form.base import Form
from touchfs.format import magic
from touchfs.format.arrow.file import parse_arrow
from touchfs.format.cache_metadata import METADATA_FILE
from touchfs.format.cache_metadata.layouts import LanceMetadata
from touchfs.shard.options import Options
from touchfs.source.fingerprint import Files
from touchfs.tables.lance.apart import LanceApart
from touchfs.tables.lance.dataset import LanceTable
from touchfs.tables.lance.forms import LanceCell, LanceRow
from touchfs.tables.lance.scan import NULL, REFUSED, BlobRanges, CellHeads
from touchfs.tables.rows.columns import CellColumn, are_only_files, column_names
from touchfs.tables.rows.extensions import UNKNOWN, cell_extensions
from touchfs.tables.rows.features import FeatureRows
from touchfs.tables.rows.rows import NO_FILE, ROW, ColumnFiles, RowBatch, WholeColumn, without_files
from touchfs.tables.rows.whole_column import whole_columns
from touchfs.tables.shards.lance_files import manifest_of, open_source, size_of
from touchfs.tables.values.field_paths import wanted_columns
from touchfs.tables.values.partition import without_columns

ROWS_AT_ONCE = 8192
# Rows whose cells are looked at for the extension of a column.
_FIRST_ROWS = 64


class LanceRowsShard(FeatureRows):
    """The rows of the dataset at `path`. Lance runs in a process of its own, until `close`."""

    def __init__(self, path: str, options: Options, files: Files, metadata: LanceMetadata | None) -> None:
        self.path = path
        self.files = files
        self.size = size_of(files)
        self._manifest, version = manifest_of(path, files)
        self.index_size = files[self._manifest].size
        self._lance = LanceApart(LanceTable(path, version, files[self._manifest]))
        self._rows: int
        try:
            self._rows, message, self._blobs = self._lance.call("describe")
            schema = drive(parse_arrow(len(message)), Memory(message)).schema
            self._schema = schema
            self._describe(schema, None if metadata is None else metadata.features, options, self._manifest)
        except BaseException:
            self.close()
            raise
        self.problems: list[str] = []
        if metadata is not None and metadata.num_rows != self._rows:
            self.problems.append(f"it has {self._rows:,} rows, and _metadata.json says {metadata.num_rows:,}")
        left_out = tuple(column.path for column in self._columns)
        has_rows = wanted_columns(schema, frozenset(left_out)) and not are_only_files(schema, self._columns, self._key)
        partition = without_columns(options.partition, column_names(schema))
        self._row = LanceRow(left_out, partition) if has_rows or partition else None

    def close(self) -> None:
        """End the process. Reading more rows starts another one."""
        self._lance.close()

    def __len__(self) -> int:
        return self._rows

    def batch_of(self, ordinal: int, *, full: bool = False) -> RowBatch:
        """See `TableRows.batch_of`: `ROWS_AT_ONCE` rows."""
        first = ordinal - ordinal % ROWS_AT_ONCE
        count = min(ROWS_AT_ONCE, self._rows - first)
        problems: list[tuple[int, str]] = []
        columns = [
            self._blob_files(place, column, first, count, problems, full=full)
            if column.path[0] in self._blobs
            else self._cell_files(place, column, first, count, problems, full=full)
            for place, column in enumerate(self._columns)
        ]
        nothing = np.zeros(count, np.int64)
        kind = np.full(count, NO_FILE, np.int16)
        if self._row is not None:
            kind[:] = self._kinds.row_number(self._manifest, self._row)
        else:  # a row without any file has a JSON in any case
            alone = without_files(columns)
            alone[[ordinal - first for ordinal, _ in problems]] = False
            kind[alone] = self._kinds.row_number(self._manifest, LanceRow(()))
        columns.append(ColumnFiles(ROW, self._kinds.of(-1), kind, nothing, nothing, nothing))
        keys = None
        if self._key is not None:
            keys = RowKeys.of(self._lance.call("values", (self._key,), first, count))
        reached(first, self._rows)
        return RowBatch(first, count, columns, keys, problems)

    def whole_columns(self) -> list[WholeColumn]:
        has_nulls = partial(self._lance.call, "has_nulls")
        return whole_columns(self._schema, self._columns, self._manifest, self._rows, has_nulls)

    def _cell_files(
        self, place: int, column: CellColumn, first: int, count: int, problems: list[tuple[int, str]], *, full: bool
    ) -> ColumnFiles:
        """The files of a column that only Lance can read."""
        heads: CellHeads | None = self._lance.call("heads", column.path, first, count) if full else None
        stored = self._lance.call("sizes", column.path, first, count) if heads is None else heads.size
        valid = np.ones(count, np.bool_) if stored is None else stored != NULL
        size = np.zeros(count, np.int64)
        if stored is not None:
            size[valid] = stored[valid] + (column.form.size(0, b"") or 0)
        shown = None if heads is None else [magic.extension(head) for head in heads.heads]
        kind = np.full(count, NO_FILE, np.int16)
        of_rows, extensions = self._extensions(place, column, first, count, shown)
        for number, extension in enumerate(extensions):
            mask = valid & (of_rows == number)
            if mask.any():
                kind[mask] = self._kind(place, self._manifest, LanceCell(column.path, column.form), extension)
        nothing = np.zeros(count, np.int64)
        files = ColumnFiles(column.name, self._kinds.of(place), kind, nothing, nothing, size)
        return self._with_videos(
            files,
            place,
            os.path.join(self.path, METADATA_FILE),
            lambda path: self._lance.call("values", path, first, count),
            first,
            problems,
        )

    def _blob_files(
        self, place: int, column: CellColumn, first: int, count: int, problems: list[tuple[int, str]], *, full: bool
    ) -> ColumnFiles:
        """The files of a column of blobs: ranges of the dataset's files."""
        blobs: BlobRanges = self._lance.call("blobs", column.path[0], first, count)
        size = np.where(blobs.file == NULL, 0, blobs.size)
        kind = np.full(count, NO_FILE, np.int16)
        for row in np.flatnonzero(blobs.file == REFUSED).tolist():
            problems.append((first + row, f"its {column.name!r} is outside of the dataset: not read"))
        shown = [self._head(blobs, row) for row in range(count)] if full else None
        of_rows, extensions = self._extensions(place, column, first, count, shown)
        for file, name in enumerate(blobs.files):
            of_file = blobs.file == file
            limit = self.files[name].size if name in self.files else None
            fits = of_file & (limit is None or (blobs.offset >= 0) & (size >= 0) & (blobs.offset <= limit - size))
            for row in np.flatnonzero(of_file & ~fits).tolist():
                problems.append((first + row, f"its {column.name!r} is not in {name}, which ends before"))
            for number, extension in enumerate(extensions):
                mask = fits & (of_rows == number)
                if not mask.any():
                    continue
                if limit is None:  # it is one file too many, or missing
                    kind[mask] = self._kind(place, self._manifest, LanceCell(column.path, column.form), extension)
                else:
                    kind[mask] = self._kind(place, name, column.form, extension)
        kinds = self._kinds.of(place)
        is_range = np.array([not each.by_ordinal for each in kinds] + [False])[kind]  # the last: no file
        shown_size = np.where(kind == NO_FILE, 0, size + (column.form.size(0, b"") or 0))
        offset, length = np.where(is_range, blobs.offset, 0), np.where(is_range, size, 0)
        return ColumnFiles(column.name, kinds, kind, offset, length, shown_size)

    def _kind(self, place: int, source: str, form: Form, extension: str) -> int:
        """The number of a kind of files of a column, a new one if it is new."""
        return self._kinds.number(place, source, form, extension, by_ordinal=isinstance(form, LanceCell))

    def _extensions(
        self, place: int, column: CellColumn, first: int, count: int, shown: list[str] | None
    ) -> tuple[NDArray[np.intp], list[str]]:
        """The extensions of a column's cells: for each row an index, and the extensions. `shown` are by their bytes."""

        def others(rows: Sequence[int]) -> Sequence[str]:
            return [self._default(place)] * len(rows) if shown is None else [shown[row] for row in rows]

        return cell_extensions(column, count, lambda path: self._lance.call("values", path, first, count), others)

    def _first_extension(self, place: int) -> str:
        """That of the first cell, if it is among the first rows."""
        column, count = self._columns[place], min(_FIRST_ROWS, self._rows)
        if column.path[0] in self._blobs:
            blobs = self._lance.call("blobs", column.path[0], 0, count)
            heads = [self._head(blobs, int(row)) for row in np.flatnonzero(blobs.file >= 0)[:1]]
        else:
            found: CellHeads = self._lance.call("heads", column.path, 0, count)
            heads = [magic.extension(found.heads[row]) for row in np.flatnonzero(found.size != NULL)[:1].tolist()]
        return next(iter(heads), UNKNOWN)

    def _head(self, blobs: BlobRanges, row: int) -> str:
        number = int(blobs.file[row])
        if number < 0 or blobs.files[number] not in self.files:
            return UNKNOWN
        with closing(open_source(self.path, blobs.files[number], self.files)) as file:
            offset, size = int(blobs.offset[row]), min(int(blobs.size[row]), magic.MAGIC_SIZE)
            return magic.extension(file.read(offset, size)) if 0 <= offset <= file.size - size else UNKNOWN
