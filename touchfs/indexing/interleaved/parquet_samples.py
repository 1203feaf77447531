"""The interleaved samples of a Parquet file: rows with the same `sample_id` are the items of a sample.

Texts and images are cells: ranges of the file, or of pages that are decoded when they are read. An image without bytes
is where its locator says. A sample comes when its last row is reached, so that only unfinished ones are in memory.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, cast

from touchfs.core.errors import FormatError
from touchfs.core.progress import reached
from touchfs.form.ordinals import pack_ordinal
from touchfs.indexing.interleaved.located_images import LocatedImages
from touchfs.indexing.interleaved.parquet_cells import PayloadCells
from touchfs.indexing.interleaved.tar_samples import ITEMS_MAX
from touchfs.indexing.report import REPORTED_MAX
from touchfs.interleaved.forms.sample_rows import SampleRows, rows_detail
from touchfs.interleaved.layout.columns import IMAGE, METADATA, METADATA_POSITION, TEXT
from touchfs.interleaved.layout.media_types import extension_of
from touchfs.shard.options import Options
from touchfs.shard.sample import Field
from touchfs.shard.single import open_source
from touchfs.source.fingerprint import Files
from touchfs.source.store import StoredFile
from touchfs.tables.parquet.open_file import OpenParquet, open_parquet
from touchfs.tables.rows.row import Row
from touchfs.tables.values.field_paths import Path
from touchfs.view.interleaved import InterleavedSample, ViewItem

_REQUIRED = ("sample_id", "position", "modality")
_REF, _TEXTS, _BYTES, _INLINE = "source_ref", "text_content", "binary_content", "inline"
_SMALL = frozenset((*_REQUIRED, _REF, "content_type", "materialize_error", "source_member", "source_frame_index"))
_UNKNOWN = "bin"


def open_parquet_samples(path: str, files: Files, options: Options) -> ParquetSamples | None:
    """The interleaved samples of the Parquet file at `path`; None if it does not have the columns that they need."""
    file = open_source(path, os.path.basename(path), files)
    table = open_parquet(file, options.limits)
    return ParquetSamples(path, file, table, options) if set(_REQUIRED) <= set(table.schema.names) else None


@dataclass(slots=True)
class _Unfinished:
    """A sample of which not all rows were seen."""

    rows: list[int] = field(default_factory=list)
    items: list[ViewItem] = field(default_factory=list)
    metadata: int | None = None
    problem: str = ""


class ParquetSamples:
    """The interleaved samples of the Parquet file at `path`. `problems` are lines about rows of no sample."""

    def __init__(self, path: str, file: StoredFile, table: OpenParquet, options: Options) -> None:
        self._name = os.path.basename(path)
        self.problems: list[str] = []
        self._file = file
        self._table = table
        self._names = table.schema.names
        self._located = LocatedImages(path, self._name, options.limits)
        self._payload: tuple[Path, ...] = ()

    def close(self) -> None:
        self._file.close()

    def __iter__(self) -> Iterator[InterleavedSample]:
        self._payload = tuple(path for name in (_BYTES, _INLINE) if (path := self._path(name)) is not None)
        left = self._counts()
        unfinished: dict[str, _Unfinished] = {}
        for sample_id, row, values, cells in self._rows():
            sample = unfinished.setdefault(sample_id, _Unfinished())
            self._add(sample, row, values, cells)
            left[sample_id] -= 1
            if not left[sample_id]:
                yield self._finished(sample_id, unfinished.pop(sample_id))
        for sample_id, sample in unfinished.items():
            yield replace(self._finished(sample_id, sample), problem="some of its rows cannot be read")

    def _path(self, name: str) -> Path | None:
        """The path of a column, or of the bytes in a FILE group; None if the file does not have it."""
        if name != _INLINE:
            return (self._names.index(name),) if name in self._names else None
        if _REF not in self._names:
            return None
        number = self._names.index(_REF)
        children = [child.name for child in self._table.ipc_schema.fields[number].children]
        return (number, children.index(_INLINE)) if _INLINE in children else None

    def _counts(self) -> Counter[str]:
        counts: Counter[str] = Counter()
        column = (self._names.index("sample_id"),)
        for batch in range(self._table.batches):
            with suppress(FormatError):  # its rows cannot be read, either
                counts.update(str(each) for each in self._table.read_values(batch, column) if each is not None)
        return counts

    def _rows(self) -> Iterator[tuple[str, int, dict[str, Any], PayloadCells]]:
        """The id, number and small values of each row of a sample, and the cells of its row group.

        Rows of a row group that is damaged are left out.
        """
        left_out = {(i,) for i, name in enumerate(self._names) if name not in _SMALL} | {*self._payload}
        payload = {name: path for name in (_TEXTS, _BYTES, _INLINE) if (path := self._path(name)) is not None}
        for batch in range(self._table.batches):
            first, end = (int(start) for start in self._table.starts[batch : batch + 2])
            cells = PayloadCells(self._table, self._file, self._name, batch, payload)
            while first < end:
                try:
                    read = self._small_values(first, end - first, left_out)
                except FormatError as error:
                    self._problem(f"rows {first} to {end - 1}", f"they cannot be read: {error.message}")
                    break
                for row, values in enumerate(read, first):
                    if (sample_id := values["sample_id"]) is None:
                        self._problem(f"row {row}", "it has no sample_id")
                    else:
                        yield str(sample_id), row, values, cells
                first += len(read)
            reached(batch + 1, self._table.batches)

    def _small_values(self, first: int, count: int, left_out: Collection[Path]) -> list[dict[str, Any]]:
        """The values of rows without the cells at some paths; of fewer rows at the end of the row group."""
        import pyarrow

        from touchfs.interleaved.items.file_column import from_file_columns

        read = pyarrow.Table.from_batches([self._table.read(first, count, left_out)])
        return cast("list[dict[str, Any]]", from_file_columns(read).to_pylist())

    def _problem(self, where: str, problem: str) -> None:
        if len(self.problems) <= REPORTED_MAX:
            self.problems.append(f"{where}: {problem}")

    def _add(self, sample: _Unfinished, row: int, values: dict[str, Any], cells: PayloadCells) -> None:
        sample.rows.append(row)
        if sample.problem:
            return
        position, modality = values["position"], values["modality"]
        if modality == METADATA or position == METADATA_POSITION:
            sample.metadata = row if sample.metadata is None else sample.metadata
        elif type(position) is not int or position < 0 or not isinstance(modality, str):
            self._problem(f"row {row}", f"its position is {position!r}, and its modality {modality!r}")
        elif (item := self._item(row, position, modality, values, cells)) is not None:
            sample.items.append(item)
            if len(sample.items) > ITEMS_MAX:
                sample.items.clear()
                sample.problem = f"it has over {ITEMS_MAX:,} items"

    def _item(
        self, row: int, position: int, modality: str, values: dict[str, Any], cells: PayloadCells
    ) -> ViewItem | None:
        """The item of a row; None for a text that is null."""
        extension, kind = extension_of(values.get("content_type")), _kind(modality)
        own = (_TEXTS,) if modality == TEXT else (_BYTES, _INLINE)
        try:
            for name in own:
                cells.check(name)
            filled = next((name for name in dict.fromkeys((*own, _TEXTS)) if cells.has(name, row)), None)
            if filled is not None:
                if extension == _UNKNOWN:
                    extension = "txt" if filled == _TEXTS else cells.extension(filled, row)
                return ViewItem(position, cells.field(filled, row, kind, extension))
        except FormatError as error:
            return ViewItem.failed(position, kind, "", extension, error.message)
        if modality == TEXT:
            return None
        problem = values.get("materialize_error")
        return self._located.item(position, kind, extension, values.get(_REF), problem)

    def _finished(self, sample_id: str, sample: _Unfinished) -> InterleavedSample:
        rows = Field("sample", self._name, 0, 0, SampleRows(self._payload), "json", detail=rows_detail(sample.rows))
        metadata = None
        if sample.metadata is not None:
            detail = pack_ordinal(sample.metadata)
            metadata = Field("metadata", self._name, 0, 0, Row(self._payload), "json", detail=detail)
        return InterleavedSample(sample_id, sample.items, rows, metadata, sample.problem)


def _kind(modality: str) -> str:
    """The field of a file: data may have any modalities, and a catalog a limited number of kinds."""
    return modality if modality in (TEXT, IMAGE) else "other"
