"""How many keys of an overlay are those of samples, as `touchfs info` and the log tell."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from touchfs.catalog.catalog import Catalog
from touchfs.core.control_characters import quote_name
from touchfs.core.names import OVERLAY_JSON
from touchfs.dataset import Dataset, counted
from touchfs.indexing.overlays.named import NamedOverlay, find_overlays
from touchfs.shard.options import Options

_COLUMNS_SHOWN = 20


class Sides(NamedTuple):
    """How many rows of an overlay are `matched` by samples, how many are `surplus`, and how many samples lack a row.

    The surplus of tables beside shards is not counted: None.
    """

    matched: int
    surplus: int | None
    missing: int


class JoinedOverlay(NamedTuple):
    """An overlay of a dataset. Tables that are beside `beside` shards are one, without a path."""

    name: str
    path: str | None
    columns: Sequence[str]
    sides: Sides
    beside: int = 0

    def __str__(self) -> str:
        columns = [quote_name(name) for name in self.columns[:_COLUMNS_SHOWN]]
        more = [f"and {len(self.columns) - len(columns):,} more"] if len(columns) < len(self.columns) else []
        what = f"beside {counted(self.beside, 'shard')}" if self.beside else quote_name(self.name)
        matched, surplus, missing = self.sides
        keys = [f"{_count(matched, 'key')} matched"]
        keys += [f"{_count(surplus, 'key')} of no sample"] if surplus else []
        keys += [f"{_count(missing, 'sample')} without a row"] if missing else []
        return f"{what} ({', '.join(columns + more)}): {', '.join(keys)}"

    def facts(self) -> dict[str, Any]:
        """The same for JSON."""
        return {"name": self.name, "path": self.path, "columns": [*self.columns], **self.sides._asdict()}


def joined_rows(catalog: Catalog, extension: str) -> NDArray[np.int64]:
    """The numbers of the rows that a joined catalog has of the overlay with this extension."""
    table = catalog.tables["shards"]
    kinds = [number for number in catalog.of_overlays if catalog.kinds[number - 1].field == extension]
    rows = np.flatnonzero(np.isin(np.asarray(table.kind), kinds))
    return np.asarray(table.offset)[rows].astype(np.int64)


def sides_of(overlay: NamedOverlay, found: Iterable[NDArray[np.int64]], samples: int) -> Sides:
    """The sides of an overlay and so many samples, of whose shards each has `found` rows. Raises as `open`."""
    has_sample, with_row = np.zeros(overlay.open().rows, bool), 0
    for rows in found:
        has_sample[rows] = True
        with_row += len(rows)
    matched = int(np.count_nonzero(has_sample))
    return Sides(matched, len(has_sample) - matched, samples - with_row)


def joined_overlays(dataset: Dataset, options: Options) -> list[JoinedOverlay]:
    """The overlays of a dataset that was opened with these options. Raises as `find_overlays` and `open`."""
    catalogs = [dataset.catalog(position) for position in range(len(dataset.shards))]
    joined, named = list[JoinedOverlay](), set[str]()
    for overlay in find_overlays(options.overlays):
        columns = overlay.open().columns
        sides = sides_of(overlay, (joined_rows(each, overlay.extension) for each in catalogs), dataset.samples)
        joined.append(JoinedOverlay(overlay.name, overlay.path, [*columns.texts, *columns.others], sides))
        named |= {overlay.extension, *(f"{name}.txt" for name in columns.texts)}
    beside = [
        each for each in catalogs if any(each.kinds[number - 1].field == OVERLAY_JSON for number in each.of_overlays)
    ]
    if beside:
        fields = dict.fromkeys(each.kinds[number - 1].field for each in beside for number in sorted(each.of_overlays))
        texts = [field.removesuffix(".txt") for field in fields if field not in {*named, OVERLAY_JSON}]
        matched = sum(len(joined_rows(each, OVERLAY_JSON)) for each in beside)
        missing = sum(each.facts.samples for each in beside) - matched
        joined.append(JoinedOverlay(OVERLAY_JSON, None, texts, Sides(matched, None, missing), len(beside)))
    return joined


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'s' * (number != 1)}"
