"""The rows of tables as they are stored: samples of Arrow and Parquet files and of Lance datasets, in any order."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray

from touchfs.bulk.convert.input import InputShard
from touchfs.bulk.tables.batches import BATCH_BYTES, DirectoryColumns
from touchfs.bulk.tables.lance_batches import LanceBatches
from touchfs.core.errors import UsageError
from touchfs.core.extras import load_pyarrow
from touchfs.dataset import Dataset
from touchfs.dataset.catalogued import CataloguedSample
from touchfs.dataset.shard import Shard
from touchfs.features import FeatureType
from touchfs.features.hugging_face import features_of_schema, schema_metadata
from touchfs.registry.containers import ARROW, PARQUET
from touchfs.select.concatenation import SetSamples, datasets_of
from touchfs.shard.single import open_source, without_lists
from touchfs.tables.arrow.arrow_file import open_arrow
from touchfs.tables.parquet.open_file import open_parquet

if TYPE_CHECKING:
    import pyarrow

    from touchfs.source.store import StoredFile

log = logging.getLogger(__name__)

# Rows that are put in order at a time.
_ROWS = 8192
_BYTES = 1 << 26


class StoredRows:
    """The rows at `ordinals` of samples that are rows, with some `columns`, by default all.

    Columns of overlays are no part of them, and a warning says so. Raises UsageError for a column that no
    table has, and for tables whose columns do not fit together.
    """

    def __init__(self, samples: SetSamples, ordinals: Sequence[int], columns: Sequence[str] | None) -> None:
        pa = load_pyarrow()
        self._samples = samples
        self._ordinals = ordinals
        datasets = datasets_of(samples)
        shards = [shard for dataset in datasets for shard in dataset.shards]
        if columns is None and any(_have_overlays(dataset) for dataset in datasets):
            log.warning("the columns of overlays are left out: `touchfs convert --overlay` writes them, too")
        self._limits = datasets[0].limits
        self._inputs = [*map(_input, shards)]
        self._bytes = sum(each.size for each in shards) // max(sum(each.samples for each in shards), 1)
        try:
            whole = pa.unify_schemas([self._schema(shard) for shard in shards], promote_options="permissive")
        except pa.ArrowException as error:
            raise UsageError(f"the columns of the shards do not fit together: {error}") from error
        names = whole.names if columns is None else columns
        if unknown := [name for name in names if name not in whole.names]:
            raise UsageError(f"no table has a column {unknown[0]!r}: there are {', '.join(whole.names)}")
        # The metadata name columns, as those of pandas and `datasets` do.
        metadata = whole.metadata if columns is None else schema_metadata(_features(whole, names))
        self.schema: pyarrow.Schema = pa.schema([whole.field(name) for name in names], metadata)

    def batches(self) -> Iterator[pyarrow.RecordBatch]:
        """The rows, some at a time: about 64 MB of stored bytes, as far as rows have about the same size."""
        pa = load_pyarrow()
        count = min(_ROWS, max(_BYTES // max(self._bytes, 1), 1))
        for start in range(0, len(self._ordinals), count):
            places = [self._place(ordinal) for ordinal in self._ordinals[start : start + count]]
            rows = np.array([row for _, row in places], np.int64)
            shards = {id(shard): shard for shard, _ in places}
            of = np.array([id(shard) for shard, _ in places])
            tables, order = [], np.zeros(len(rows), np.int64)
            before = 0
            for number, shard in shards.items():
                mine = np.flatnonzero(of == number)
                wanted, where = np.unique(rows[mine], return_inverse=True)
                order[mine] = where + before
                before += len(wanted)
                tables += [self._fitted(batch) for batch in self._read(shard, wanted)]
            table = pa.Table.from_batches(tables, self.schema).take(pa.array(order))
            yield from table.combine_chunks().to_batches()

    def _place(self, ordinal: int) -> tuple[Shard, int]:
        sample = cast(CataloguedSample, self._samples[ordinal])
        return sample.indexed_shard, sample.ordinal

    def _schema(self, shard: Shard) -> pyarrow.Schema:
        if shard.container not in (ARROW, PARQUET):
            return LanceBatches([_input(shard)], _ROWS, self._limits).schema
        with closing(open_source(shard.path, os.path.basename(shard.path), shard.files)) as file:
            table = (open_arrow if shard.container is ARROW else open_parquet)(file, self._limits)
            return DirectoryColumns(self._inputs, table.schema).schema

    def _read(self, shard: Shard, rows: NDArray[np.int64]) -> Iterator[pyarrow.RecordBatch]:
        """Rows of a shard, ascending, each once."""
        if shard.container not in (ARROW, PARQUET):
            yield from self._read_lance(shard, rows)
            return
        with closing(open_source(shard.path, os.path.basename(shard.path), shard.files)) as file:
            read = self._read_arrow if shard.container is ARROW else self._read_parquet
            for schema, batch in read(file, rows):
                yield DirectoryColumns(self._inputs, schema).of(batch, _input(shard))

    def _read_arrow(
        self, file: StoredFile, rows: NDArray[np.int64]
    ) -> Iterator[tuple[pyarrow.Schema, pyarrow.RecordBatch]]:
        table = open_arrow(file, self._limits)
        names = [name for name in self.schema.names if name in table.schema.names]
        schema = load_pyarrow().schema([field for field in table.schema if field.name in names])
        numbers = np.searchsorted(table.starts, rows, "right") - 1
        for number in np.unique(numbers).tolist():
            chosen = rows[numbers == number] - int(table.starts[number])
            yield schema, table.read_batch(number, names).take(load_pyarrow().array(chosen))

    def _read_parquet(
        self, file: StoredFile, rows: NDArray[np.int64]
    ) -> Iterator[tuple[pyarrow.Schema, pyarrow.RecordBatch]]:
        table = open_parquet(file, self._limits)
        left_out = [(i,) for i, name in enumerate(table.schema.names) if name not in self.schema.names]
        schema = load_pyarrow().schema([field for field in table.schema if field.name in self.schema.names])
        place, most = 0, max(1, table.rows * BATCH_BYTES // max(file.size, 1))
        while place < len(rows):
            first = int(rows[place])
            end = min(first + most, int(table.starts[table.locate(first)[0] + 1]))
            after = int(np.searchsorted(rows, end))
            batch = table.read(first, int(rows[after - 1]) - first + 1, left_out)
            yield schema, batch.take(load_pyarrow().array(rows[place:after] - first))
            place = after

    def _read_lance(self, shard: Shard, rows: NDArray[np.int64]) -> Iterator[pyarrow.RecordBatch]:
        start = 0
        for batch in LanceBatches([_input(shard)], _ROWS, self._limits).batches(lambda done, total: None):
            first, end = np.searchsorted(rows, (start, start + len(batch)))
            if end > first:
                yield batch.take(load_pyarrow().array(rows[first:end] - start))
            start += len(batch)

    def _fitted(self, batch: pyarrow.RecordBatch) -> pyarrow.RecordBatch:
        pa, names = load_pyarrow(), batch.schema.names
        columns = [
            batch.column(names.index(field.name)).cast(field.type)
            if field.name in names
            else pa.nulls(len(batch), field.type)
            for field in self.schema
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def _features(schema: pyarrow.Schema, names: Sequence[str]) -> dict[str, FeatureType]:
    return {name: kind for name, kind in (features_of_schema(schema.metadata) or {}).items() if name in names}


def _have_overlays(dataset: Dataset) -> bool:
    return any(dataset.catalog(position).of_overlays for position in range(len(dataset.shards)))


def _input(shard: Shard) -> InputShard:
    return InputShard(shard.path, without_lists(shard.files), shard.partition)
