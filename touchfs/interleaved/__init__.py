"""Interleaved image-text samples: read, filter and write them as WebDataset tars or Parquet files.

    from touchfs.interleaved import InterleavedFilter, InterleavedParquetWriter, InterleavedWebdatasetReader

    reader = InterleavedWebdatasetReader("tars", fields=("url",), max_batch_bytes=2**29)
    (reader | InterleavedFilter("aspect_ratio < 2") | InterleavedParquetWriter("parquet")).run()

The names are those of NeMo Curator, also its stages' as aliases. See `docs/interleaved.md`. Each is imported at its
first use, and needs fsspec and pyarrow.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from touchfs.core.errors import MissingExtraError
from touchfs.core.extras import install_hint

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

if TYPE_CHECKING:
    from touchfs.interleaved.filters import DropInvalidRows, DropOrphanMetadata, InterleavedFilter, RecomputePositions
    from touchfs.interleaved.items.batch import InterleavedBatch
    from touchfs.interleaved.items.materialize import materialize
    from touchfs.interleaved.items.pipeline import Pipeline
    from touchfs.interleaved.items.policy import apply_policy
    from touchfs.interleaved.items.schema import (
        FILE_TYPE,
        INTERLEAVED_SCHEMA,
        RESERVED_COLUMNS,
        align_interleaved_table,
        align_table,
        reconcile_schema,
        resolve_schema,
    )
    from touchfs.interleaved.items.split import split_by_size
    from touchfs.interleaved.layout.source_ref import SourceRef, format_source_ref, parse_source_ref
    from touchfs.interleaved.open import open_interleaved
    from touchfs.interleaved.read.parquet import InterleavedParquetReader
    from touchfs.interleaved.read.webdataset import InterleavedWebdatasetReader
    from touchfs.interleaved.write import InterleavedParquetWriter, InterleavedWebdatasetWriter

    InterleavedParquetReaderStage = InterleavedParquetReader
    InterleavedWebdatasetReaderStage = InterleavedWebdatasetReader
    InterleavedParquetWriterStage = InterleavedParquetWriter
    InterleavedWebdatasetWriterStage = InterleavedWebdatasetWriter
else:
    # Where the public names are defined.
    _NAMES = {
        "touchfs.interleaved.layout.source_ref": ("SourceRef", "format_source_ref", "parse_source_ref"),
        "touchfs.interleaved.filters": (
            "DropInvalidRows",
            "DropOrphanMetadata",
            "InterleavedFilter",
            "RecomputePositions",
        ),
        "touchfs.interleaved.open": ("open_interleaved",),
        "touchfs.interleaved.items.batch": ("InterleavedBatch",),
        "touchfs.interleaved.items.materialize": ("materialize",),
        "touchfs.interleaved.items.pipeline": ("Pipeline",),
        "touchfs.interleaved.items.policy": ("apply_policy",),
        "touchfs.interleaved.items.schema": (
            "FILE_TYPE",
            "INTERLEAVED_SCHEMA",
            "RESERVED_COLUMNS",
            "align_interleaved_table",
            "align_table",
            "reconcile_schema",
            "resolve_schema",
        ),
        "touchfs.interleaved.items.split": ("split_by_size",),
        "touchfs.interleaved.read.parquet": ("InterleavedParquetReader",),
        "touchfs.interleaved.read.webdataset": ("InterleavedWebdatasetReader",),
        "touchfs.interleaved.write": ("InterleavedParquetWriter", "InterleavedWebdatasetWriter"),
    }
    _MODULES = {name: module for module, names in _NAMES.items() for name in names}

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        try:
            import fsspec  # noqa: F401
            import pyarrow  # noqa: F401
        except ImportError as error:
            hint = install_hint("interleaved")
            raise MissingExtraError(f"interleaved samples need fsspec and pyarrow: {hint}") from error
        name = name.removesuffix("Stage")
        return getattr(importlib.import_module(_MODULES[name]), name)
