"""Writer of interleaved samples as Parquet files, a row for each item. Each image is a range of the file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from touchfs.core.errors import ArgumentValueError
from touchfs.interleaved.items.schema import INTERLEAVED_SCHEMA
from touchfs.interleaved.write.parquet_items import ParquetItems
from touchfs.interleaved.write.writer import InterleavedWriter
from touchfs.tables.parquet.write_settings import payload_settings


class InterleavedParquetWriter(InterleavedWriter):
    """Writes batches to Parquet files of the directory `path`, a path or a URL of fsspec.

    Besides fsspec's `storage_options` for `path`, `write_kwargs` has `compression` (that of all columns but
    `binary_content` and others of bytes; a mapping names columns), `row_group_size` (the most rows of a row group), and
    any other argument of `pyarrow.parquet.ParquetWriter`. Columns that only some batches have are null in the others.
    The other parameters (materialize_on_write, mode, on_materialize_error, schema, schema_overrides, locations,
    limits) are those of `InterleavedWriter`.
    """

    suffix = ".parquet"

    def _check_options(self) -> None:
        rows = self.options.get("row_group_size")
        if rows is not None and rows < 1:
            raise ArgumentValueError(f"a row group has at least one row, not {rows}")
        schema = self.schema or INTERLEAVED_SCHEMA
        settings = self._settings(schema)
        try:
            pyarrow.parquet.ParquetWriter(pa.BufferOutputStream(), schema, **settings).close()
        except (TypeError, ValueError, pa.ArrowException) as error:
            raise ArgumentValueError(f"Parquet files cannot be written so: {error}") from error

    def _open(self, path: Path) -> ParquetItems:
        return ParquetItems(path, self.schema, self._settings, self.options.get("row_group_size"))

    def _settings(self, schema: pa.Schema) -> dict[str, Any]:
        options = {name: value for name, value in self.options.items() if name != "row_group_size"}
        compression = options.pop("compression", "zstd")
        if not isinstance(compression, Mapping):
            return payload_settings(schema, compression) | options
        settings = payload_settings(schema)
        settings["compression"] |= compression
        return settings | options
