"""Open the table in a source: an Arrow or Parquet file, or the manifest of a version of a Lance dataset.

The name of the source says which of them it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from touchfs.core.location import Location
from touchfs.limits import Limits
from touchfs.tables.arrow.arrow_file import ArrowFile, open_arrow
from touchfs.tables.lance.columns import LanceColumns
from touchfs.tables.lance.dataset import LanceTable
from touchfs.tables.lance.versions import manifest_of_dataset
from touchfs.tables.parquet.layout import is_parquet
from touchfs.tables.parquet.open_file import OpenParquet, open_parquet

if TYPE_CHECKING:
    from touchfs.source.store import StoredFile

TableFile = ArrowFile | OpenParquet
OpenTable = TableFile | LanceColumns


def open_table_file(source: StoredFile, limits: Limits) -> TableFile:
    """The file in a source, which this process may have open. Raises FormatError, and the errors of sources."""
    inside = Location.of(source.path).inside
    name = source.path if inside is None else inside.name
    return open_parquet(source, limits) if is_parquet(name) else open_arrow(source, limits)


def open_table(source: StoredFile, limits: Limits) -> OpenTable:
    """The table in a source, whose columns can be read. Raises as `open_table_file`, and as `LanceTable`."""
    found = manifest_of_dataset(source.path)
    if found is not None:
        return LanceColumns(LanceTable(*found, source.fingerprint))
    return open_table_file(source, limits)
