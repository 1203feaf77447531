"""Columns that are passed through, as fields of a sample's JSON.

A field has the value of the sample's metadata row. If that has none, it is a list: with a value for each image if only
images have values, for each text if only texts have, and for each item in the order of positions if both have.

Source: nemo_curator/stages/interleaved/io/writers/webdataset.py of NeMo Curator 1.4.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute

from touchfs.core.errors import ArgumentValueError
from touchfs.interleaved.layout.columns import IMAGE, METADATA, TEXT
from touchfs.tables.values.json_values import json_values


def json_columns(table: pa.Table, names: Iterable[str]) -> dict[str, list[Any]]:
    """Return the values of columns as JSON has them: bytes in base64, times in ISO 8601, NaN as null."""
    return {name: _values(table.column(name).combine_chunks()) for name in names}


def _values(column: pa.Array) -> list[Any]:
    if pa.types.is_floating(column.type):
        column = pyarrow.compute.if_else(pyarrow.compute.is_nan(column), None, column)
    return json_values(column)


def passthrough_fields(
    columns: dict[str, list[Any]], rows: Sequence[int], modalities: Sequence[str]
) -> tuple[dict[str, Any], set[str]]:
    """Return the fields of a sample, and the names of columns whose values in items are not among them.

    `rows` are the numbers of the sample's rows, in the order of positions; `modalities` are those of all rows. Raises
    ArgumentValueError if metadata rows of the sample have different values.
    """
    by_modality: dict[str, list[int]] = {TEXT: [], IMAGE: [], METADATA: []}
    for row in rows:
        by_modality[modalities[row]].append(row)
    items = [row for row in rows if modalities[row] != METADATA]
    fields: dict[str, Any] = {}
    hidden = set()
    for name, values in columns.items():
        metadata = [values[row] for row in by_modality[METADATA] if values[row] is not None]
        present = {modalities[row] for row in items if values[row] is not None}
        if metadata:
            if any(value != metadata[0] for value in metadata):
                raise ArgumentValueError(f"metadata rows of one sample differ in the column {name!r}")
            fields[name] = metadata[0]
            if any(values[row] not in (None, metadata[0]) for row in items):
                hidden.add(name)
        elif present:
            chosen = items if len(present) == 2 else by_modality[present.pop()]
            fields[name] = [values[row] for row in chosen]
    return fields, hidden
