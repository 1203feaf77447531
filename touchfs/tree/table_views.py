"""`columns/`: a directory for each shard that is a table, with its columns as whole files."""

from __future__ import annotations

from collections.abc import Iterator

from touchfs.dataset.shard_videos import may_have_videos
from touchfs.indexing.tables.row_tables import COLUMNS
from touchfs.shard.open import is_table
from touchfs.tree.catalog_view import CatalogView
from touchfs.tree.entry import Entry
from touchfs.tree.inode import pack, unpack
from touchfs.tree.open_shards import OpenShards

__all__ = ["COLUMNS", "ColumnsView", "has_tables", "is_shown_table"]


def has_tables(shards: OpenShards) -> bool:
    """True if any shard that can be served is a table."""
    return any(is_shown_table(shards, shard_id) for shard_id in shards.ids(0))


def is_shown_table(shards: OpenShards, shard_id: int) -> bool:
    """True if a shard is a table and can be served."""
    shard = shards.shard(shard_id)
    if may_have_videos(shard):
        return COLUMNS in shards.get(shard_id).tables
    return shard.samples > 0 and is_table(shard.path, shard.files)


class ColumnsView(CatalogView):
    """The directory `columns`, a `Subtree`. Shards that are no tables are not in it."""

    def find(self, directory: int, name: bytes, *, is_guest: bool = False) -> Entry | None:
        found = super().find(directory, name)
        if found is None or directory != pack(self._number, 0, 0):
            return found
        return found if is_shown_table(self._shards, unpack(found.inode)[1]) else None

    def entries(self, directory: int, after: int) -> Iterator[tuple[bytes, Entry, int]]:
        for each in super().entries(directory, after):
            if directory != pack(self._number, 0, 0) or is_shown_table(self._shards, each[2]):
                yield each
