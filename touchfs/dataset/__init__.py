"""A dataset: shards in order, each with its catalog, and an index of keys over all. `touchfs.indexing` opens one."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

from touchfs.catalog.catalog import Catalog, encode_key
from touchfs.catalog.key_endings import Endings, may_clash
from touchfs.catalog.keys import Holder, Keys
from touchfs.catalog.table import Table
from touchfs.errors import ChangedError, SourceError
from touchfs.limits import LIMITS, Limits
from touchfs.names import hash_of, plain_path, quote
from touchfs.shard.open import kind_name, open_source
from touchfs.source.concat import StoredFile
from touchfs.source.local import FileIdentity

_TABLES_KEPT = 64


@dataclass(frozen=True, slots=True)
class Shard:
    """What a dataset knows of a shard without its catalog. `name` is its directory in the tree, unique."""

    name: str
    path: str
    files: dict[str, FileIdentity]
    catalog: str
    samples: int
    seconds: float
    size: int
    index_size: int
    catalog_size: int
    damaged: int
    report: str
    timed: int
    endings: Endings

    @property
    def mtime_ns(self) -> int:
        return max((identity.mtime_ns for identity in self.files.values()), default=0)

    @property
    def identity(self) -> str:
        """A short text that is another one when a file of the shard is, or its rows are: what a shard id is given for.

        Rows also depend on what names the catalog (`_digest`): the sample rate, and the version of catalogs.
        """
        listed = [f"{name}\0{f.size}\0{f.mtime_ns}\0{f.inode}" for name, f in self.files.items()]
        told = "\0".join([*listed, os.path.basename(self.catalog)])
        return hashlib.blake2b(told.encode(errors="surrogateescape"), digest_size=16).hexdigest()

    def source(self, name: str) -> StoredFile:
        """A file of the shard, by the name that a kind of file in its catalog gives as its source."""
        return open_source(self.path, name, self.files)


class Dataset:
    """`keys` is the index of keys, or the reason why there is none. `limits` are for what is read of it.

    `moved_from` is the source that the data were at when they were indexed; empty if that is where they are. `unseen`
    are the paths of shards that did not answer when it was opened: what is known of them is from before.
    """

    def __init__(
        self,
        source: str,
        shards: Sequence[Shard],
        keys: Keys | str,
        limits: Limits = LIMITS,
        moved_from: str = "",
        unseen: Collection[str] = frozenset(),
    ) -> None:
        self.source = source
        self.moved_from = moved_from
        self.unseen = unseen
        self.limits = limits
        self.shards = tuple(shards)
        self.keys = keys
        self._tables: dict[int, Table] = {}
        self.by_name = {os.fsencode(shard.name): position for position, shard in enumerate(self.shards)}

    def catalog(self, position: int) -> Catalog:
        """The catalog of the shard at a position, mapped anew. Raises ChangedError if it is another one's by now."""
        shard = self.shards[position]
        catalog = Catalog(shard.catalog, shard.path)
        if dict(catalog.facts.files) != shard.files:
            raise ChangedError("its catalog was made anew: `touchfs reload`, or mount again", path=shard.path)
        return catalog

    def find(self, key: str) -> list[Holder]:
        """The samples that have this key or are shown under it, in dataset order.

        Raises SourceError where there is no index of keys.
        """
        if isinstance(self.keys, str):
            raise SourceError(f"keys cannot be found: {self.keys}", path=self.source)
        wanted, found, plain = encode_key(key), [], plain_path(key)
        holders = [*map(self.keys.holder, self.keys.find(hash_of(quote(key))))]
        if plain != key:  # what is `./a` in an archive is shown as `a`; elsewhere it is a key of its own
            holders = sorted({*holders, *map(self.keys.holder, self.keys.find(hash_of(quote(plain))))})
        for holder in holders:
            table = self._table(holder.position)
            for row in table.files(holder.ordinal)[:1]:
                if wanted == table.own_key(row) or wanted == encode_key(table.shown_key(row)):
                    found.append(holder)
        return found

    def _table(self, position: int) -> Table:
        """The table of all files of a shard; of those asked for last, mapped already."""
        table = self._tables.get(position)
        if table is None:
            table = self._tables[position] = self.catalog(position).tables["shards"]
            if len(self._tables) > _TABLES_KEPT:
                del self._tables[next(iter(self._tables))]
        return table

    def __str__(self) -> str:
        return f"{counted(len(self.shards), 'shard')}, {counted(self.samples, 'sample')}"

    @property
    def samples(self) -> int:
        return sum(shard.samples for shard in self.shards)

    @property
    def seconds(self) -> float:
        return sum(shard.seconds for shard in self.shards)

    @property
    def timed(self) -> int:
        """How many samples have a recording of which it is known how long it is: `seconds` is the sum of these."""
        return sum(shard.timed for shard in self.shards)

    @cached_property
    def names_may_clash(self) -> bool:
        """Whether files of two keys may have one name where all keys are in one directory."""
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
        """What `touchfs info` and `.touchfs/info` tell, by name."""
        return {
            "kind": ", ".join(sorted({kind_name(shard.path, shard.files) for shard in self.shards})),
            "shards": len(self.shards),
            "samples": self.samples,
            "hours": round(self.seconds / 3600, 6) if self.timed or not self.samples else None,
            "samples_of_unknown_duration": self.samples - self.timed,
            "bytes": self.size,
            "index_overhead_percent": round(100 * self.overhead, 4),
            "by_key": f"absent: {self.keys}" if isinstance(self.keys, str) else len(self.keys),
            "damaged_samples": sum(shard.damaged for shard in self.shards),
            "shards_with_errors": [shard.name for shard in self.shards if shard.report],
            **({"moved_from": self.moved_from} if self.moved_from else {}),
        }


def counted(number: int, what: str) -> str:
    """`1 sample`, `2 samples`"""
    return f"{number} {what}{'s' * (number != 1)}"
