"""The columns of interleaved samples, and how tables get the types of a schema.

A row is an item: a text, an image, or the metadata of its sample. Reserved columns have canonical types; all others
are passed through as they are.

Source: nemo_curator/stages/interleaved/utils/schema.py of NeMo Curator 1.4.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

import pyarrow as pa

from touchfs.interleaved.items.file_column import FILE_TYPE, from_file_columns, is_file_type, to_file_columns
from touchfs.interleaved.layout.columns import RESERVED_COLUMNS

__all__ = ["FILE_TYPE", "INTERLEAVED_SCHEMA", "RESERVED_COLUMNS"]

log = logging.getLogger(__name__)

INTERLEAVED_SCHEMA: pa.Schema = pa.schema(
    [
        pa.field("sample_id", pa.string(), nullable=False),
        pa.field("position", pa.int32(), nullable=False),
        pa.field("modality", pa.string(), nullable=False),
        pa.field("content_type", pa.string()),
        pa.field("text_content", pa.string()),
        pa.field("binary_content", pa.large_binary()),
        pa.field("source_ref", pa.string()),
        pa.field("materialize_error", pa.string()),
    ]
)
REQUIRED_COLUMNS = tuple(field.name for field in INTERLEAVED_SCHEMA if not field.nullable)
_CANONICAL = {field.name: field for field in INTERLEAVED_SCHEMA}


def reconcile_schema(inferred: pa.Schema) -> pa.Schema:
    """Return the schema with the canonical types of reserved columns, in the same order.

    A large string or binary stays large, as its offsets may not fit 32 bits. Columns that are passed through keep their
    types, but a dictionary becomes the type of its values. Reserved columns that are missing are not added.
    """
    return pa.schema([_reconciled(field) for field in inferred])


def _reconciled(field: pa.Field) -> pa.Field:
    values = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    canonical = _CANONICAL.get(field.name)
    if canonical is None:
        return pa.field(field.name, values, nullable=field.nullable)
    is_large = pa.types.is_large_string(values) and pa.types.is_string(canonical.type)
    return pa.field(field.name, values if is_large else canonical.type, nullable=canonical.nullable)


def resolve_schema(schema: pa.Schema | None, schema_overrides: Mapping[str, pa.DataType] | None) -> pa.Schema | None:
    """Return the schema that a reader or writer uses: `schema`, or the canonical one with `schema_overrides`.

    Columns that only the overrides name come last and may be null. If both are given, a warning says that the overrides
    are ignored. None if neither is given.
    """
    if schema is not None:
        if schema_overrides:
            log.warning("schema_overrides is ignored because schema is given: use one of them")
        return schema
    if not schema_overrides:
        return None
    fields = dict(_CANONICAL)
    for name, kind in schema_overrides.items():
        fields[name] = fields[name].with_type(kind) if name in fields else pa.field(name, kind)
    return pa.schema(list(fields.values()))


def align_table(table: pa.Table, target: pa.Schema) -> pa.Table:
    """Return the table with exactly the columns of `target`, in its order and types.

    Missing columns become nulls, others are dropped. `source_ref` may change between JSON and FILE groups. Only a
    reserved column is cast from large strings or binaries to small ones; every other cast that loses something raises
    pyarrow.ArrowInvalid.
    """
    table = _with_source_of(table, target)
    # By name, a table looks through all of its columns, of which there may be thousands.
    found = dict(zip(table.column_names, table.columns, strict=True))
    columns = [
        _aligned(found[field.name], field) if field.name in found else pa.nulls(table.num_rows, field.type)
        for field in target
    ]
    return pa.table(columns, schema=target)


def align_interleaved_table(table: pa.Table, schema: pa.Schema | None = None) -> pa.Table:
    """Return the table aligned to `schema`; without one, its reserved columns get their canonical types."""
    if schema is not None:
        return align_table(table, schema)
    table = from_file_columns(table)
    return table.cast(reconcile_schema(table.schema))


def _with_source_of(table: pa.Table, target: pa.Schema) -> pa.Table:
    """Convert locators to what the target has: FILE groups, or JSON."""
    if "source_ref" not in target.names:
        return table
    if is_file_type(target.field("source_ref").type):
        return to_file_columns(table)
    return from_file_columns(table)


def _aligned(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    if column.type == field.type:
        return column
    return column.cast(field.type, safe=not (field.name in _CANONICAL and _is_narrowing(column.type, field.type)))


def _is_narrowing(found: pa.DataType, wanted: pa.DataType) -> bool:
    return (found, wanted) in ((pa.large_string(), pa.string()), (pa.large_binary(), pa.binary()))
