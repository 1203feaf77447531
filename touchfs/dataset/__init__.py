"""A dataset: shards in order, each with its catalog, and an index of keys over all. `touchfs.indexing` opens one.

At first it is the list of its shards. A shard is indexed when somebody looks into it, and all of them when something is
asked for that all have a part in: a count, a key, an order.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import cached_property
from typing import NamedTuple, Protocol

from touchfs.catalog.catalog import Catalog
from touchfs.catalog.key_endings import may_clash
from touchfs.catalog.keys import Holder, Keys
from touchfs.catalog.table import Table
from touchfs.catalog.table_builder import encode_key
from touchfs.core.errors import ChangedError, FormatError, SourceError
from touchfs.core.names import hash_of, plain_path, quote
from touchfs.dataset.shard import ListedShard, Shard
from touchfs.limits import LIMITS, Limits
from touchfs.media.extensions import can_be_cut, is_recording
from touchfs.posix.bounded_cache import BoundedCache
from touchfs.registry.directory.left_out import LeftOutFiles
from touchfs.registry.directory.splits import in_order
from touchfs.source.store import StoredFile

_TABLES_KEPT = 64
# Facts that need all shards.
_OF_ALL_SHARDS = (
    *("samples", "hours", "samples_of_unknown_duration", "segments", "bytes", "index_overhead_percent"),
    *("by_key", "damaged_samples", "shards_with_errors"),
)


class IndexedShards(NamedTuple):
    """All shards of a dataset, indexed, and what is made from all of them.

    `keys` is the index of keys, or the reason why there is none. `interleaved` has the same shards with other catalogs,
    those of interleaved samples: only shards that have such samples, None if no shard has any. `moved_from` is the
    source path when the data were indexed, or "" if they have not been moved. `damaged` are files of the index that
    were damaged, and made again.
    """

    shards: tuple[Shard, ...]
    keys: Keys | str
    interleaved: Dataset | None = None
    moved_from: str = ""
    damaged: Sequence[str] = ()


class Indexer(Protocol):
    """Indexes the shards of a dataset when they are needed."""

    def shard(self, position: int) -> Shard:
        """The shard at a position, indexed now if it is not yet. Raises SourceError if no index can be written."""
        ...

    def headers(self, position: int) -> Shard:
        """The shard at a position as far as its headers tell, which are read now if it is not indexed. Raises as
        `shard`.
        """
        ...

    def all(self) -> IndexedShards:
        """All shards, and what needs all. Raises as `shard`."""
        ...

    def has(self, position: int) -> bool:
        """Whether the shard at a position is indexed by now, by this process or another one."""
        ...

    def has_headers(self, position: int) -> bool:
        """Whether its headers have been read by now."""
        ...


class Dataset:
    """Shards in order. `listed` is what was found; those that are indexed already are `Shard`s. `index` has the
    catalogs, or makes them when they are needed.

    `limits` bound what is read. `unseen` are the paths of shards that did not answer when the dataset was opened: the
    facts about them are from an earlier opening. `left_out` is what the search for its shards left out. `split` is the
    split that was asked for, None for all shards. `index_again` makes the catalog of a shard again if it is damaged;
    without it that is an error. `overlays` is the hash of its overlays, "" if it has none.
    """

    left_out: LeftOutFiles = LeftOutFiles()

    def __init__(
        self,
        source: str,
        listed: Sequence[ListedShard],
        index: Indexer | IndexedShards,
        limits: Limits = LIMITS,
        unseen: Collection[str] = frozenset(),
        split: str | None = None,
        index_again: Callable[[Shard], None] | None = None,
        overlays: str = "",
    ) -> None:
        self.source = source
        self.overlays = overlays
        self.split = split
        self.unseen = unseen
        self.limits = limits
        self.index_again = index_again
        self.listed = tuple(listed)
        self._index = index
        self._one: BoundedCache[int, Shard] = BoundedCache(len(self.listed))
        self._all: BoundedCache[None, IndexedShards] = BoundedCache(1)
        self._tables: BoundedCache[int, Table] = BoundedCache(_TABLES_KEPT)
        self.by_name = {os.fsencode(shard.name): position for position, shard in enumerate(self.listed)}

    @classmethod
    def of(
        cls,
        source: str,
        shards: Sequence[Shard],
        keys: Keys | str,
        limits: Limits = LIMITS,
        unseen: Collection[str] = frozenset(),
        split: str | None = None,
        index_again: Callable[[Shard], None] | None = None,
        overlays: str = "",
    ) -> Dataset:
        """The dataset of shards that are indexed."""
        return cls(source, shards, IndexedShards(tuple(shards), keys), limits, unseen, split, index_again, overlays)

    @property
    def is_indexed(self) -> bool:
        """True if all shards are indexed, and nothing of it waits for that."""
        return isinstance(self._index, IndexedShards)

    @property
    def indexed(self) -> IndexedShards:
        """All shards with what needs all. Those that are not indexed yet are indexed now.

        Raises SourceError if no index can be written.
        """
        index = self._index
        if not isinstance(index, IndexedShards):
            index = self._index = self._all.get(None, index.all)
        return index

    @property
    def shards(self) -> tuple[Shard, ...]:
        """All shards, as `indexed`."""
        return self.indexed.shards

    def shard(self, position: int) -> Shard:
        """The shard at a position, which is indexed now if it is not yet. Raises as `indexed`."""
        index = self._index
        if isinstance(index, IndexedShards):
            return index.shards[position]
        return self._one.get(position, lambda: index.shard(position))

    def headers(self, position: int) -> Shard:
        """The shard at a position with all that `shards/` shows of it. If it is not indexed yet, its headers are read,
        and of its segments nothing may be known. Raises as `indexed`.
        """
        index = self._index
        if isinstance(index, IndexedShards) or self.has_index(position):
            return self.shard(position)
        return index.headers(position)

    def index_by(self, wrap: Callable[[Indexer], Indexer]) -> None:
        """Have another indexer around the one of this dataset, unless all is indexed."""
        if not isinstance(self._index, IndexedShards):
            self._index = wrap(self._index)

    @property
    def indexed_count(self) -> int:
        """How many shards are indexed by now, by this process or another one."""
        return sum(map(self.has_index, range(len(self.listed))))

    def has_index(self, position: int) -> bool:
        """Whether the shard at a position is indexed by now, by this process or another one."""
        index = self._index
        return isinstance(index, IndexedShards) or position in self._one or index.has(position)

    def has_headers(self, position: int) -> bool:
        """Whether `headers` of the shard at a position reads nothing."""
        index = self._index
        return self.has_index(position) or (not isinstance(index, IndexedShards) and index.has_headers(position))

    @property
    def unindexed(self) -> list[ListedShard]:
        """The shards that were not indexed when the dataset was opened."""
        return [] if self.is_indexed else [shard for shard in self.listed if not isinstance(shard, Shard)]

    @property
    def indexed_so_far(self) -> list[Shard]:
        """The shards that this process knows to be indexed by now. Indexes none."""
        if self.is_indexed:
            return [*self.shards]
        listed = {position: shard for position, shard in enumerate(self.listed) if isinstance(shard, Shard)}
        return [*(listed | dict(self._one.items())).values()]

    @property
    def keys(self) -> Keys | str:
        """See `IndexedShards`."""
        return self.indexed.keys

    def without_keys(self, reason: str) -> None:
        """Have no index of keys from now on."""
        self._index = self.indexed._replace(keys=reason)

    @property
    def interleaved(self) -> Dataset | None:
        """See `IndexedShards`."""
        return self.indexed.interleaved

    @property
    def moved_from(self) -> str:
        """See `IndexedShards`."""
        return self.indexed.moved_from

    @property
    def damaged(self) -> Sequence[str]:
        """See `IndexedShards`."""
        return self.indexed.damaged

    def in_directory(self, name: str) -> list[int]:
        """The positions of the shards in the directory of a split in `shards/`; empty if there is no such directory."""
        return [position for position, shard in enumerate(self.listed) if shard.directory == f"{name}/"]

    def sources(self) -> Iterator[StoredFile]:
        """The files of all shards."""
        return (shard.source(name) for shard in self.listed for name in shard.files)

    def catalog(self, position: int) -> Catalog:
        """Map the catalog of the shard at a position, as `catalog_of`."""
        return self.catalog_of(self.shard(position))

    def catalog_of(self, shard: Shard) -> Catalog:
        """Map the catalog of a shard. One that is damaged is made again first.

        Raises ChangedError if it was replaced since the dataset was opened, and as `Catalog` and `index_again`.
        """
        try:
            catalog = Catalog(shard.catalog, shard.path)
        except FormatError:
            if self.index_again is None:
                raise
            self.index_again(shard)
            catalog = Catalog(shard.catalog, shard.path)
        if dict(catalog.facts.files) != shard.files or catalog.facts.unmeasured != shard.unmeasured:
            raise ChangedError("its catalog was rebuilt: `touchfs reload`, or mount again", path=shard.path)
        return catalog

    def find(self, key: str) -> list[Holder]:
        """The samples that have this key or are shown under it, in dataset order.

        Raises SourceError if there is no index of keys.
        """
        if isinstance(self.keys, str):
            raise SourceError(f"keys cannot be found: {self.keys}", path=self.source)
        encoded, found, plain = encode_key(key), [], plain_path(key)
        holders = [*map(self.keys.holder, self.keys.find(hash_of(quote(key))))]
        if plain != key:  # `./a` in an archive is shown as `a`; elsewhere it is a key of its own
            holders = sorted({*holders, *map(self.keys.holder, self.keys.find(hash_of(quote(plain))))})
        for holder in holders:
            table = self._table(holder.position)
            for row in table.files(holder.ordinal)[:1]:
                if encoded == table.own_key(row) or encoded == encode_key(table.shown_key(row)):
                    found.append(holder)
        return found

    def _table(self, position: int) -> Table:
        """The table of all files of a shard, from a cache of the last `_TABLES_KEPT`."""
        return self._tables.get(position, lambda: self.catalog(position).tables["shards"])

    def __str__(self) -> str:
        return f"{counted(len(self.shards), 'shard')}, {counted(self.samples, 'sample')}"

    @property
    def samples(self) -> int:
        """The number of samples of all shards."""
        return sum(shard.samples for shard in self.shards)

    @property
    def seconds(self) -> float:
        """The total duration of the samples whose duration is known."""
        return sum(shard.seconds for shard in self.shards)

    @property
    def timed(self) -> int:
        """The number of samples whose duration is known; `seconds` is their sum."""
        return sum(shard.timed for shard in self.shards)

    @property
    def splits(self) -> dict[str, int]:
        """The number of samples of each split that its shards are of; empty if there are none."""
        return {
            split: sum(shard.samples for shard in self.shards if shard.split == split)
            for split in in_order(shard.split for shard in self.shards)
        }

    @property
    def has_recordings(self) -> bool:
        """True if there are recordings; also if a shard has too many extensions for its catalog to list them."""
        return any(
            shard.timed or any(can_be_cut(suffix[1:]) for suffix in shard.endings.suffixes or (".wav",))
            for shard in self.shards
            if shard.samples
        )

    @property
    def has_tokens(self) -> bool:
        """True if there are arrays that may be tokens: no catalog is opened."""
        suffixes = (suffix for shard in self.shards if shard.may_have_tokens for suffix in shard.endings.suffixes)
        return any(suffix.endswith(".npy") for suffix in suffixes)

    @property
    def names_recordings(self) -> bool:
        """True if there are recordings, even if all are PCM of unknown rate, which cannot be cut."""
        suffixes = (suffix for shard in self.shards for suffix in shard.endings.suffixes)
        return self.has_recordings or any(is_recording(suffix[1:]) for suffix in suffixes)

    @property
    def is_empty(self) -> bool:
        """True if no shard has a sample, so nothing says what the dataset is of."""
        return not any(shard.samples for shard in self.shards)

    @property
    def has_videos(self) -> bool:
        """True if a shard has frames of videos: it is a Lance cache, and its samples are nothing but JSON. No catalog
        is opened, so this is also true for a cache of rows that have no other files.
        """
        return any(shard.may_have_videos for shard in self.shards)

    @cached_property
    def names_may_clash(self) -> bool:
        """True if files of two keys may get the same name if all keys are in one directory."""
        return may_clash(shard.endings for shard in self.shards if shard.samples)

    @property
    def size(self) -> int:
        """Bytes of data, without any index."""
        return sum(shard.size for shard in self.shards)

    @property
    def overhead(self) -> float:
        """Bytes of indexes, catalogs and keys for each byte of data."""
        extra = sum(shard.index_size + shard.catalog_size for shard in self.shards)
        if not isinstance(self.keys, str):
            extra += self.keys.size
        return extra / self.size if self.size else 0.0

    def facts(self) -> dict[str, object]:
        """The values that `touchfs info` and `.touchfs/info` print, by name. Waits for nothing: most are None until all
        shards are indexed.
        """
        if not self.is_indexed:
            kinds = ", ".join(sorted({shard.container.name for shard in self.listed}))
            known = {"kind": kinds, "shards": len(self.listed), "indexed_shards": self.indexed_count}
            left_out = {"left_out": [each._asdict() for each in self.left_out.reasons()]} if self.left_out else {}
            return {**known, **dict.fromkeys(_OF_ALL_SHARDS), **left_out}
        return {
            "kind": ", ".join(sorted({shard.container.name for shard in self.shards})),
            "shards": len(self.shards),
            "samples": self.samples,
            "hours": round(self.seconds / 3600, 6) if self.timed or not self.samples else None,
            "samples_of_unknown_duration": self.samples - self.timed if self.names_recordings else 0,
            "segments": sum(shard.segments for shard in self.shards),
            "bytes": self.size,
            "index_overhead_percent": round(100 * self.overhead, 4),
            "by_key": f"absent: {self.keys}" if isinstance(self.keys, str) else len(self.keys),
            "damaged_samples": sum(shard.damaged for shard in self.shards),
            "shards_with_errors": [shard.name for shard in self.shards if shard.reports],
            **({"splits": splits} if (splits := self.splits) else {}),
            **({} if self.interleaved is None else {"interleaved_samples": self.interleaved.samples}),
            **({"left_out": [each._asdict() for each in self.left_out.reasons()]} if self.left_out else {}),
            **({"moved_from": self.moved_from} if self.moved_from else {}),
        }


def counted(number: int, what: str) -> str:
    """A number and a noun: `1 sample`, `2 samples`, `2 batches`."""
    plural = "es" if what.endswith("ch") else "s"
    return f"{number} {what}{plural * (number != 1)}"
