"""A table with the columns of overlays after its own. A column that the table has stays as it is.

The types follow from the values of all rows, as Arrow infers them. Values of several types become texts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from touchfs.bulk.convert.input import AddedByOverlays, InputShard
from touchfs.bulk.tables.batches import BatchSource
from touchfs.catalog.catalog import Catalog
from touchfs.core.errors import FormatError
from touchfs.core.extras import load_pyarrow
from touchfs.core.json_text import parse_json
from touchfs.core.names import is_overlay_row
from touchfs.core.progress import Progress

if TYPE_CHECKING:
    import pyarrow

# Rows whose types are found together
_ROWS = 1 << 14
_FLOATS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


class OverlaidTable:
    """The `table` that these shards are, with the columns of their overlays (`BatchSource`). Raises FormatError."""

    def __init__(self, table: BatchSource, shards: Sequence[InputShard]) -> None:
        pa = load_pyarrow()
        self._table = table
        self._shards = shards
        self.directory = table.directory
        self.description: dict[str, Any] = {"schema_fingerprint": ""}
        types: dict[str, Any] = {}
        rows = self._rows()
        while batch := [*islice(rows, _ROWS)]:
            for name in dict.fromkeys(chain.from_iterable(batch)):
                values = [_number(row[name]) for row in batch if name in row]
                types[name] = _unified(types.get(name, pa.null()), _type_of(values))
        self._added = [pa.field(name, kind) for name, kind in types.items() if name not in table.schema.names]
        self.schema = pa.schema([*table.schema, *self._added], table.schema.metadata)

    def batches(self, progress: Progress) -> Iterator[pyarrow.RecordBatch]:
        """See `BatchSource.batches`."""
        pa, rows = load_pyarrow(), self._rows()
        for batch in self._table.batches(progress):
            found = [*islice(rows, len(batch))]
            if len(found) < len(batch):
                raise FormatError("has more rows than its index: index it again", path=self._shards[-1].path)
            added = [_column([row.get(field.name) for row in found], field.type) for field in self._added]
            yield pa.RecordBatch.from_arrays([*batch.columns, *added], schema=self.schema)

    def _rows(self) -> Iterator[dict[str, Any]]:
        """The overlays' values by column, for each chosen row of the table."""
        for shard in self._shards:
            catalog = Catalog(shard.overlaid, shard.path) if shard.overlaid else None
            added = None if catalog is None else AddedByOverlays(catalog)
            count = 0 if catalog is None else catalog.facts.samples
            for ordinal in range(count) if shard.chosen is None else shard.chosen.numbers:
                yield {} if added is None else _row(added, ordinal)


def _row(added: AddedByOverlays, ordinal: int) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for file in added.files(ordinal):
        if is_overlay_row(file.label):
            try:
                found = parse_json(file.field.detail)
            except (ValueError, RecursionError) as error:
                raise FormatError(f"its .{file.label} is not JSON: {error}") from error
            row = {**found, **row} if isinstance(found, dict) else row
    return row


def _number(value: Any) -> Any:
    return _FLOATS.get(value, value) if isinstance(value, str) else value


def _type_of(values: Sequence[Any]) -> pyarrow.DataType:
    pa = load_pyarrow()
    try:
        return pa.array(values).type
    except (pa.ArrowException, OverflowError, TypeError, UnicodeEncodeError):
        return pa.string()


def _unified(one: pyarrow.DataType, other: pyarrow.DataType) -> pyarrow.DataType:
    pa = load_pyarrow()
    schemas = [pa.schema([pa.field("", kind)]) for kind in (one, other)]
    try:
        return pa.unify_schemas(schemas, promote_options="permissive").field(0).type
    except pa.ArrowException:
        return pa.string()


def _column(values: Sequence[Any], kind: pyarrow.DataType) -> pyarrow.Array:
    pa = load_pyarrow()
    if pa.types.is_string(kind):
        return pa.array([each if isinstance(each, str | None) else json.dumps(each) for each in values], kind)
    return pa.array([*map(_number, values)], kind)
