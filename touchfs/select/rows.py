"""Filter expressions over items: which rows of interleaved samples an expression keeps.

A row has these facts:

    width, height     pixels of an image; unless a column says so, the header of its bytes does
    aspect_ratio      width / height
    every column      by its name; `info.lang` looks into a struct, or into JSON in a text

A row whose column is null has the value of its sample's metadata row there, except in the reserved columns. So
`lang == "en"` keeps or drops a sample as a whole. A value that is null there, too, is a field that the row lacks.

The expression decides about content rows. If it names width, height or aspect_ratio, it is about images and decides
only about them: the texts beside them stay. A metadata row stays if any content row of its sample does.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from touchfs.format.image_size import ImageSize
from touchfs.interleaved.layout.columns import RESERVED_COLUMNS
from touchfs.select.expression import Where, spell_field
from touchfs.tables.values.json_values import json_values

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)

SIZE_FIELDS = frozenset({"width", "height", "aspect_ratio"})
# Returns the sizes of the images in some rows of a table.
SizesOf = Callable[[Sequence[int]], Sequence[ImageSize | None]]


def matching_rows(table: pa.Table, where: Where, sizes_of: SizesOf) -> NDArray[np.bool_]:
    """Return a boolean for each row of a table of items: True if it stays.

    `sizes_of` is asked once, for the rows of images whose size the expression needs. Logs the fields that no row has.
    """
    is_metadata = has_modality(table, "metadata")
    stays = ~is_metadata
    tested = has_modality(table, "image") if top_names(where) & SIZE_FIELDS else stays
    rows = np.flatnonzero(tested).tolist()
    stays[rows] = [where.matches(facts) for facts in _facts(table, where, rows, sizes_of)]
    return stays | (is_metadata & in_sample_with(table, stays))


def in_sample_with(table: pa.Table, chosen: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return a boolean for each row of a table of items: True if a chosen row has the same `sample_id`."""
    import pyarrow as pa
    import pyarrow.compute as pc

    ids = table.column("sample_id")
    found: NDArray[np.bool_] = pc.is_in(ids, pc.unique(ids.filter(pa.array(chosen)))).to_numpy()
    return found


def top_names(where: Where) -> set[str]:
    """Return the names of the columns that an expression names, and of sizes."""
    return {path[0] for path in where.fields}


def spell_names(names: Iterable[str]) -> str:
    """Return the names as expressions have them, sorted."""
    return ", ".join(spell_field((name,)) for name in sorted(names))


def has_modality(table: pa.Table, modality: str) -> NDArray[np.bool_]:
    """Return a boolean for each row of a table of items: True if it has the modality."""
    import pyarrow.compute as pc

    found: NDArray[np.bool_] = pc.fill_null(pc.equal(table.column("modality"), modality), False).to_numpy()
    return found


def _facts(table: pa.Table, where: Where, rows: list[int], sizes_of: SizesOf) -> Iterator[Mapping[str, Any]]:
    """Yield the facts of each of `rows`, as far as the expression uses them."""
    names = top_names(where)
    nested = {path[0] for path in where.fields if len(path) > 1}
    columns = {name: _values(table, name, rows, name in nested) for name in names.intersection(table.column_names)}
    sizes: Sequence[ImageSize | None] = sizes_of(rows) if names & SIZE_FIELDS else [None] * len(rows)
    _log_missing(names, columns.keys(), sizes)
    for number, size in enumerate(sizes):
        facts = {} if size is None else _size_facts(size)
        facts.update({name: values[number] for name, values in columns.items() if values[number] is not None})
        yield facts


def _size_facts(size: ImageSize) -> dict[str, Any]:
    return {"width": size.width, "height": size.height, "aspect_ratio": size.aspect_ratio}


def _log_missing(names: set[str], columns: Set[str], sizes: Sequence[ImageSize | None]) -> None:
    if missing := names - columns - SIZE_FIELDS:
        log.warning("where: no row has the field %s", spell_names(missing))
    if names & SIZE_FIELDS and (unknown := sum(size is None for size in sizes)):
        log.warning("where: %d of %d images have no size that can be read", unknown, len(sizes))


def _values(table: pa.Table, name: str, rows: list[int], is_nested: bool) -> list[Any]:
    """Return the values of a column in `rows`. A null is replaced by the value of the sample's metadata row."""
    values = _json(table.column(name), rows, is_nested)
    if name in RESERVED_COLUMNS or None not in values:
        return values
    metadata_rows = np.flatnonzero(has_modality(table, "metadata")).tolist()
    ids = table.column("sample_id")
    owners = ids.take(metadata_rows).to_pylist()
    shared = dict(zip(reversed(owners), reversed(_json(table.column(name), metadata_rows, is_nested)), strict=True))
    return [
        shared.get(owner) if value is None else value
        for value, owner in zip(values, ids.take(rows).to_pylist(), strict=True)
    ]


def _json(column: pa.ChunkedArray, rows: list[int], is_nested: bool) -> list[Any]:
    import pyarrow as pa

    values = json_values(column.take(pa.array(rows, pa.int64())).combine_chunks())
    return [_parsed(value) for value in values] if is_nested else values


def _parsed(value: Any) -> Any:
    """Return what a JSON text has in it, and anything else as it is."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value
