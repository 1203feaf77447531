"""`columns/`: a directory for each shard that is a table, with its columns as whole files."""

from __future__ import annotations

from collections.abc import Iterator

from touchfs.tree.catalog_view import CatalogView
from touchfs.tree.entry import Entry
from touchfs.tree.inode import pack, unpack


class ColumnsView(CatalogView):
    """The directory `columns`, a `Subtree`. Shards that are no tables are not in it."""

    def find(self, directory: int, name: bytes, *, is_guest: bool = False) -> Entry | None:
        found = super().find(directory, name)
        if found is None or directory != pack(self._number, 0, 0):
            return found
        return found if self._shards.is_shown_table(unpack(found.inode)[1]) else None

    def entries(self, directory: int, after: int) -> Iterator[tuple[bytes, Entry, int]]:
        for each in super().entries(directory, after):
            if directory != pack(self._number, 0, 0) or self._shards.is_shown_table(each[2]):
                yield each
