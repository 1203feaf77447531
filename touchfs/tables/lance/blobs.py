"""Blob columns of Lance: values that lie beside the other data, in the dataset or, by a URI, in any file.

Lance reads whatever a URI names, with our permissions, and data may be planted. So URIs are looked at beforehand, and
those that lead out of the dataset are refused.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from touchfs.core.errors import FormatError
from touchfs.tables.lance.dataset import LanceTable
from touchfs.tables.lance.errors import lance_errors

if TYPE_CHECKING:
    import pyarrow

_KEY, _TRUE = b"lance-encoding:blob", b"true"
_EXTENSION = "lance.blob.v2"


def blob_columns(schema: pyarrow.Schema) -> list[str]:
    return [field.name for field in schema if _is_blob(field)]


def binary_schema(schema: pyarrow.Schema) -> pyarrow.Schema:
    """The schema with the values of blobs instead of what Lance stores for them."""
    import pyarrow as pa

    fields = [pa.field(f.name, pa.large_binary(), f.nullable) if _is_blob(f) else f for f in schema]
    return pa.schema(fields, schema.metadata)


def check_blobs(table: LanceTable) -> None:
    """Raise FormatError if a blob lies outside of the dataset, or is a part of a value. Reads descriptors only."""
    for field in table.schema:
        if any(_holds_blobs(field.type.field(i)) for i in range(field.type.num_fields)) and not _is_blob(field):
            raise FormatError(f"column {field.name!r} has blobs inside of its values: not supported", path=table.path)
    columns = blob_columns(table.schema)
    if not columns:
        return
    root = None if table.location.is_url else os.path.join(table.location.resolved, "")
    with lance_errors(table.path):
        for batch in table.dataset.to_batches(columns=columns, blob_handling="blobs_descriptions"):
            for uri in _uris(batch):
                parts = urlsplit(uri)
                place = os.path.realpath(unquote(parts.path))
                if root is None or parts.scheme != "file" or parts.netloc or not place.startswith(root):
                    raise FormatError(f"a blob lies outside of the dataset: {uri!r:.200}", path=table.path)


def read_blobs(table: LanceTable, column: str, rows: Sequence[int]) -> pyarrow.Array:
    """The values of a blob column in some rows, in their order."""
    import pyarrow as pa

    with lance_errors(table.path):
        found = table.dataset.read_blobs(column, indices=list(rows), preserve_order=True)
    return pa.array([value for _, value in found], pa.large_binary())


def _is_blob(field: pyarrow.Field) -> bool:
    is_marked: bool = (field.metadata or {}).get(_KEY) == _TRUE
    return is_marked or getattr(field.type, "extension_name", "") == _EXTENSION


def _holds_blobs(field: pyarrow.Field) -> bool:
    kind: Any = field.type
    return _is_blob(field) or any(_holds_blobs(kind.field(i)) for i in range(kind.num_fields))


def _uris(batch: pyarrow.RecordBatch) -> Iterator[str]:
    """The URIs of blobs. Before version 2.2 there are none."""
    import pyarrow as pa

    for column in batch.columns:
        if pa.types.is_struct(column.type) and column.type.get_field_index("blob_uri") >= 0:
            yield from (uri for uri in column.field("blob_uri").unique().to_pylist() if uri)
