"""Interleaved image-text samples: read, filter and write them as WebDataset tars or Parquet files.

    from touchfs.interleaved import InterleavedFilter, InterleavedParquetWriter, InterleavedWebdatasetReader

    reader = InterleavedWebdatasetReader("tars", fields=("url",), max_batch_bytes=2**29)
    (reader | InterleavedFilter("aspect_ratio < 2") | InterleavedParquetWriter("parquet")).run()

The names are those of NeMo Curator, also its stages' as aliases. See `docs/interleaved.md`.
"""

from touchfs.errors import MissingExtraError
from touchfs.extras import install_hint

try:
    import fsspec  # noqa: F401
    import pyarrow  # noqa: F401
except ImportError as error:
    raise MissingExtraError(f"interleaved samples need fsspec and pyarrow: {install_hint('interleaved')}") from error

from touchfs.format.interleaved.source_ref import SourceRef, format_source_ref, parse_source_ref
from touchfs.interleaved.filters import DropInvalidRows, DropOrphanMetadata, InterleavedFilter, RecomputePositions
from touchfs.interleaved.open import open_interleaved
from touchfs.items.batch import InterleavedBatch
from touchfs.items.materialize import materialize
from touchfs.items.pipeline import Pipeline
from touchfs.items.policy import apply_policy
from touchfs.items.schema import (
    FILE_TYPE,
    INTERLEAVED_SCHEMA,
    RESERVED_COLUMNS,
    align_interleaved_table,
    align_table,
    reconcile_schema,
    resolve_schema,
)
from touchfs.items.split import split_by_size
from touchfs.shard.interleaved.parquet import InterleavedParquetReader
from touchfs.shard.interleaved.webdataset import InterleavedWebdatasetReader
from touchfs.write.interleaved import InterleavedParquetWriter, InterleavedWebdatasetWriter

InterleavedParquetReaderStage = InterleavedParquetReader
InterleavedWebdatasetReaderStage = InterleavedWebdatasetReader
InterleavedParquetWriterStage = InterleavedParquetWriter
InterleavedWebdatasetWriterStage = InterleavedWebdatasetWriter

__all__ = [
    "FILE_TYPE",
    "INTERLEAVED_SCHEMA",
    "RESERVED_COLUMNS",
    "DropInvalidRows",
    "DropOrphanMetadata",
    "InterleavedBatch",
    "InterleavedFilter",
    "InterleavedParquetReader",
    "InterleavedParquetReaderStage",
    "InterleavedParquetWriter",
    "InterleavedParquetWriterStage",
    "InterleavedWebdatasetReader",
    "InterleavedWebdatasetReaderStage",
    "InterleavedWebdatasetWriter",
    "InterleavedWebdatasetWriterStage",
    "Pipeline",
    "RecomputePositions",
    "SourceRef",
    "align_interleaved_table",
    "align_table",
    "apply_policy",
    "format_source_ref",
    "materialize",
    "open_interleaved",
    "parse_source_ref",
    "reconcile_schema",
    "resolve_schema",
    "split_by_size",
]
