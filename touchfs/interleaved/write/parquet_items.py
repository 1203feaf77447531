"""A Parquet file of items that is being written, from tables whose columns may differ."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet

from touchfs.core.errors import ArgumentTypeError
from touchfs.interleaved.items.schema import INTERLEAVED_SCHEMA, REQUIRED_COLUMNS, align_table
from touchfs.tables.parquet.write_settings import ROW_GROUP_BYTES


class ParquetItems:
    """Rows are collected for a row group. `settings` gives the arguments of pyarrow's writer for a schema.

    If a `schema` is given, all tables have it. Otherwise it is that of the tables, and a file cannot change it. A table
    with new columns therefore begins a new part, and the parts are copied into one file at the end. This happens once
    for each new column at most, and mostly never.
    """

    def __init__(
        self,
        path: Path,
        schema: pa.Schema | None,
        settings: Callable[[pa.Schema], dict[str, Any]],
        row_group_size: int | None = None,
    ) -> None:
        self._path = path
        self._schema = schema
        self._is_fixed = schema is not None
        self._settings = settings
        self._rows_max = row_group_size
        self._pending: list[pa.Table] = []
        self._pending_bytes = 0
        self._writer: pyarrow.parquet.ParquetWriter | None = None
        self._parts: list[Path] = []

    def append(self, table: pa.Table) -> None:
        """Append rows. Raises ArgumentTypeError if a column has a type that does not go with that of earlier rows."""
        schema = self._unified(table.schema)
        if self._writer is not None and schema != self._schema:
            self._flush()
            self._close()
        self._schema = schema
        self._pending.append(table)
        self._pending_bytes += table.nbytes
        if self._pending_bytes >= ROW_GROUP_BYTES:
            self._flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        try:
            if kind is None:
                self._flush()
        finally:
            self._close()
        if kind is None:
            self._join()

    def _unified(self, found: pa.Schema) -> pa.Schema:
        if self._is_fixed:
            return self._schema
        fields = [field.with_nullable(field.name not in REQUIRED_COLUMNS) for field in found]
        schema = pa.schema(fields)
        if self._schema is None or schema == self._schema:
            return schema
        try:
            return pa.unify_schemas([self._schema, schema], promote_options="permissive")
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise _misfit(error) from error

    def _flush(self) -> None:
        self._schema = self._schema or INTERLEAVED_SCHEMA
        writer = self._writer = self._writer or self._open_part(self._schema)
        tables = [_aligned(table, self._schema) for table in self._pending]
        table = pa.concat_tables(tables) if tables else self._schema.empty_table()
        for group in _groups(table, self._rows_max):
            writer.write_table(group, row_group_size=max(group.num_rows, 1))
        self._pending = []
        self._pending_bytes = 0

    def _open_part(self, schema: pa.Schema) -> pyarrow.parquet.ParquetWriter:
        part = self._path.with_name(f"part{len(self._parts)}")
        self._parts.append(part)
        return self._open(part, schema)

    def _open(self, path: Path, schema: pa.Schema) -> pyarrow.parquet.ParquetWriter:
        try:
            return pyarrow.parquet.ParquetWriter(path, schema, **self._settings(schema))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise _misfit(error) from error

    def _close(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()

    def _join(self) -> None:
        """Make the file of the parts. Its memory is that of one row group."""
        if len(self._parts) == 1:
            os.rename(self._parts[0], self._path)
            return
        with self._open(self._path, self._schema) as writer:
            for part in self._parts:
                with pyarrow.parquet.ParquetFile(part) as file:
                    for i in range(file.num_row_groups):
                        table = _aligned(file.read_row_group(i), self._schema)
                        writer.write_table(table, row_group_size=max(table.num_rows, 1))


def _groups(table: pa.Table, rows_max: int | None) -> Iterator[pa.Table]:
    """Cut a table in halves until each has `ROW_GROUP_BYTES` and `rows_max` rows at most, or one row."""
    is_small = table.nbytes <= ROW_GROUP_BYTES and (rows_max is None or table.num_rows <= rows_max)
    if is_small or table.num_rows < 2:
        yield table
        return
    middle = table.num_rows // 2
    yield from _groups(table.slice(0, middle), rows_max)
    yield from _groups(table.slice(middle), rows_max)


def _aligned(table: pa.Table, schema: pa.Schema) -> pa.Table:
    try:
        return align_table(table, schema)
    except pa.ArrowInvalid as error:
        raise _misfit(error) from error


def _misfit(error: Exception) -> ArgumentTypeError:
    return ArgumentTypeError(
        f"the columns of all batches do not fit one Parquet file: {error}: give types with schema_overrides="
    )
