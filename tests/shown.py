"""What a catalog shows, as a dict of path and bytes: every file read through the contents that the library makes."""

from __future__ import annotations

from collections.abc import Iterator

from touchfs.catalog.catalog import Catalog
from touchfs.catalog.table import DIRECTORY, Table
from touchfs.core.extent import Content, Extent, Memory
from touchfs.dataset import Dataset
from touchfs.limits import LIMITS, Limits
from touchfs.registry.forms import parse_form
from touchfs.registry.open import open_source


def contents(catalog: Catalog, shard: str, view: str, limits: Limits = LIMITS) -> dict[str, Content]:
    table = catalog.tables[view]
    return {path: _content(catalog, table, row, shard, limits) for path, row in rows(table)}


def rows(table: Table, directory: int = 0, above: str = "") -> Iterator[tuple[str, int]]:
    """Path and row of every file."""
    for row in table.children(directory):
        path = above + table.name(row).decode()
        if table.kind[row] == DIRECTORY:
            yield from rows(table, row, path + "/")
        else:
            yield path, row


def _content(catalog: Catalog, table: Table, row: int, shard: str, limits: Limits) -> Content:
    kind = catalog.kinds[table.kind[row] - 1]
    form, extent = parse_form(kind.form), Extent(Memory(b""), 0, 0)
    if form.reads_shard:
        source = open_source(shard, kind.source, catalog.facts.files)
        extent = Extent(source, table.offset[row], table.length[row])
    content = form.content(extent, table.inline(row), limits)
    unknown = form.size(table.length[row], table.inline(row)) is None and table.size[row] == 0
    assert unknown or content.size == table.size[row], "stat would tell another size than there are bytes"
    return content


def files(catalog: Catalog, shard: str, view: str = "shards", limits: Limits = LIMITS) -> dict[str, bytes]:
    return {
        path: bytes(content.read(0, content.size)) for path, content in contents(catalog, shard, view, limits).items()
    }


def dataset_files(dataset: Dataset, view: str = "shards", limits: Limits = LIMITS) -> dict[str, bytes]:
    return {
        f"{shard.name}/{path}": data
        for position, shard in enumerate(dataset.shards)
        for path, data in files(dataset.catalog(position), shard.path, view, limits).items()
    }
