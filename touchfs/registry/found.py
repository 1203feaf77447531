"""What a search for shards finds: shards, their splits, values of their directories, and names in the tree."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple
from urllib.parse import unquote

from touchfs.core.errors import UsageError
from touchfs.core.location import Location
from touchfs.core.names import assign
from touchfs.registry.containers import DIRECTORY, LANCE, Container
from touchfs.registry.directory.left_out import LeftOutFiles
from touchfs.registry.directory.members import directory_of
from touchfs.registry.directory.splits import in_order, listed_splits, named_splits
from touchfs.registry.open import shard_name
from touchfs.source.store import Store
from touchfs.tables.values.partition import partitions_of


class FoundShard(NamedTuple):
    """A shard: where it is, and which kind it is by its name and its directory. A missing one is what it is named like.

    `split` is the split that it is of, "" if of none. `partition` has the values of its directories, if it is a table
    (`touchfs.tables.values.partition`).
    """

    location: Location
    container: Container
    split: str = ""
    partition: str = ""

    @property
    def path(self) -> str:
        return self.location.path


class Found(NamedTuple):
    """The shards of a source, in dataset order, and what was left out."""

    shards: list[FoundShard]
    left_out: LeftOutFiles

    def of_split(self, split: str | None, source: str) -> Found:
        """The shards of a split of the source; all, if it is None. Raises UsageError if there is no such split."""
        if split is None:
            return self
        shards = [shard for shard in self.shards if shard.split == split]
        if not shards:
            splits = in_order(shard.split for shard in self.shards)
            there = f"there {'are' if len(splits) > 1 else 'is'} {', '.join(splits)}"
            nothing = "there are no splits, as neither a list nor the names of its shards tell any"
            raise UsageError(f"no split {split!r}: {there if splits else nothing}", path=source)
        return self._replace(shards=shards)


def described(
    shards: Sequence[FoundShard], source: Location, store: Store, known: Mapping[str, str]
) -> list[FoundShard]:
    """The shards with their splits and the values of their directories: of those below the source if it is a directory,
    as pyarrow has them, else of all. The splits that lists tell are `known`, by path.
    """
    directory = directory_of(source, store)
    listed = listed_splits([shard.path for shard in shards], known)
    unlisted = [shard for shard, split in zip(shards, listed, strict=True) if not split]
    ends = ("/" if shard.container in (DIRECTORY, LANCE) else "" for shard in unlisted)
    names = (_place(shard.location, directory) or shard.location.name for shard in unlisted)
    named = iter(named_splits([*map(str.__add__, names, ends)]))
    tables = [shard.location for shard in shards if shard.container.column_types is not None]
    places = (_place(each, directory) if directory == source.path else _place(each.absolute, "") for each in tables)
    partitions = dict(zip(tables, partitions_of([*map(os.path.dirname, places)]), strict=True))
    return [
        shard._replace(split=split or next(named), partition=partitions.get(shard.location, ""))
        for shard, split in zip(shards, listed, strict=True)
    ]


def _place(location: Location, directory: str) -> str:
    """The path of a location below a directory, as a file of this machine would have it: without the escapes of web
    servers; "" if it is not there.
    """
    start = os.path.join(directory, "")
    if not location.path.startswith(start):
        return ""
    place = location.path[len(start) :]
    return unquote(place, errors="surrogateescape") if location.speaks_http else place


def unique_names(shards: Iterable[tuple[Location, Container]]) -> list[bytes]:
    """The shards' directory names in the tree: the name of each by its path, with `~n` for repeated names."""
    stems = [shard_name(*shard) for shard in shards]
    return [name for _, (name,) in assign(stems, [[None] for _ in stems])]
