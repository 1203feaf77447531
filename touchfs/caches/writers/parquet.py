"""Writer of Parquet shards: record batches, or a generator of examples, become Parquet files in a directory.

Columns of files stay uncompressed, a value a page where they are large, so that a mount finds each of them
(`touchfs.tables.parquet.write_settings`). What the columns are is in the metadata of the schema, where Hugging Face's
`datasets` puts it: such a directory is no cache, and has no `_metadata.json`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from touchfs.caches.writers.arrow import Shards
from touchfs.caches.writers.encode import record_batches
from touchfs.caches.writers.publish import Building, publish
from touchfs.core.errors import ArgumentValueError, UsageError
from touchfs.core.extras import load_pyarrow
from touchfs.features import Features, Video
from touchfs.features.hugging_face import schema_metadata
from touchfs.tables.parquet.write_settings import payload_settings

if TYPE_CHECKING:
    import pyarrow

SHARD_NAME = "shard-{:05d}.parquet"
# Of the columns that are no files: half the size of snappy, and every reader knows it.
COMPRESSION = "zstd"


def write_parquet_shards(
    generator: Iterable[tuple[Any, Mapping[str, Any]]],
    features: Features,
    directory: str | os.PathLike[str],
    *,
    shard_size_bytes: float,
    batch_size: int,
    compression: str | None,
    num_encode_workers: int,
) -> int:
    """Write the examples of a generator, pairs of a key and a dict, as Parquet files in a directory, which appears as a
    whole. Returns their number. A batch is a row group.

    Raises as `write_sharded_arrow_cache`.
    """
    if any(isinstance(feature, Video) and feature.storage == "frames" for feature in features.values()):
        raise ArgumentValueError("Video(storage='frames') needs Lance: `touchfs pack lance`")
    with publish(directory) as building:
        batches = record_batches(
            generator,
            features,
            batch_size=batch_size,
            num_encode_workers=num_encode_workers,
            cache_dir=building.path,
        )
        rows = write_batches(batches, features.to_arrow_schema(), features, building, shard_size_bytes, compression)
        building.finish()
    return rows


def write_batches(
    batches: Iterator[pyarrow.RecordBatch],
    schema: pyarrow.Schema,
    features: Features,
    building: Building,
    target: float,
    compression: str | None,
) -> int:
    """Write batches into the directory that is being built. Returns the number of rows.

    Without rows there is one file, which has the columns. Raises UsageError for types that Parquet does not have.
    """
    described = schema.with_metadata({**schema_metadata(features), **(schema.metadata or {})})
    shards = Shards(building, SHARD_NAME, lambda path: ParquetFileWriter(path, described, compression), target)
    with closing(shards):
        for batch in batches:
            shards.write(batch)
        if not shards.names:
            shards.write(_no_rows(described))
    return sum(shards.row_counts)


def _no_rows(schema: pyarrow.Schema) -> pyarrow.RecordBatch:
    pa = load_pyarrow()
    return pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)


class ParquetFileWriter:
    """A `ShardFile` of Parquet that is being written, to a path or an open file."""

    def __init__(self, file: Path | BinaryIO, schema: pyarrow.Schema, compression: str | None) -> None:
        pa = load_pyarrow()
        import pyarrow.parquet

        self._schema = schema
        with _types_of(pa):
            # With statistics a reader knows from the footer where no payload is null. Long values are not in them.
            settings = {**payload_settings(schema, compression or COMPRESSION), "write_statistics": True}
            self._writer = pyarrow.parquet.ParquetWriter(file, schema, **settings)

    def write_batch(self, batch: pyarrow.RecordBatch) -> None:
        pa = load_pyarrow()
        table = pa.Table.from_batches([batch]).replace_schema_metadata(self._schema.metadata)
        with _types_of(pa):
            self._writer.write_table(table, row_group_size=max(len(batch), 1))

    def close(self) -> None:
        self._writer.close()


@contextmanager
def _types_of(pa: Any) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid) as error:
        raise UsageError(f"Parquet cannot store a column: {error}") from error
