"""A dataset: shards in order, each with its catalog, and an index of keys over all. `touchfs.indexing` opens one."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from touchfs.catalog.catalog import Catalog
from touchfs.catalog.key_endings import Endings, may_clash
from touchfs.catalog.keys import Holder, Keys
from touchfs.catalog.table import Table
from touchfs.catalog.table_builder import encode_key
from touchfs.errors import ChangedError, FormatError, SourceError
from touchfs.format.cache_metadata import METADATA_FILE
from touchfs.limits import LIMITS, Limits
from touchfs.media.extensions import can_be_cut
from touchfs.names import hash_of, hex_digest, plain_path, quote
from touchfs.shard.directory.left_out import LeftOutFiles
from touchfs.shard.directory.splits import in_order
from touchfs.shard.open import kind_name, open_source
from touchfs.shard.tables.lance_files import is_lance
from touchfs.source.fingerprint import Fingerprint
from touchfs.source.store import StoredFile

_TABLES_KEPT = 64


@dataclass(frozen=True, slots=True)
class Shard:
    """The facts about a shard that are known without opening its catalog.

    `name` is its unique directory name in the tree. Sizes are in bytes; `seconds` and `timed` are the total duration
    and the number of the samples whose duration is known. `segments` counts those of all samples, `unmeasured` the
    samples whose recording has to be read to know its length, `regrouped` the files that version 0.1 put into other
    samples.
    `report` is the text of its ERROR.txt, "" if nothing is wrong. `split` is its split, "" if it is of none, and
    `directory` the directory of that below `shards/`, as `train/`, if the dataset has shards of several splits.
    `partition` has the values of its directories (`touchfs.tables.partition`).
    """

    name: str
    path: str
    files: dict[str, Fingerprint]
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
    segments: int
    unmeasured: int
    regrouped: int = 0
    split: str = ""
    directory: str = ""
    partition: str = ""

    def path_in(self, view: str) -> str:
        """The path of its directory in a view, relative to the root of the tree."""
        return f"{view}/{self.directory if view == 'shards' else ''}{self.name}"

    @property
    def mtime_ns(self) -> int:
        """The latest modification time of its files, in nanoseconds; 0 if there are none."""
        return max((fingerprint.mtime_ns for fingerprint in self.files.values()), default=0)

    @property
    def identity(self) -> str:
        """A hash that changes when a file of the shard or a row of its catalog changes. Shard ids are assigned by it.

        Rows also depend on everything in the catalog's name: the options, and the version of catalogs; and on whether
        all recordings were read.
        """
        listed = [f"{name}\0{fingerprint.hashed}" for name, fingerprint in self.files.items()]
        unmeasured = [f"unmeasured {self.unmeasured}"] if self.unmeasured else []
        message = "\0".join([*listed, os.path.basename(self.catalog), *unmeasured])
        return hex_digest(message.encode(errors="surrogateescape"))

    @property
    def may_have_videos(self) -> bool:
        """True if the shard is a Lance cache, and its samples are nothing but JSON."""
        is_cache = METADATA_FILE in self.files and is_lance(self.files)
        return self.samples > 0 and is_cache and self.endings.suffixes == (".json",)

    def source(self, name: str) -> StoredFile:
        """Open a file of the shard by name, as given by `source` of a kind of file in its catalog."""
        return open_source(self.path, name, self.files)


class Dataset:
    """Shards in order. `keys` is the index of keys, or the reason why there is none. `limits` bound what is read.

    `moved_from` is the source path when the data were indexed, or "" if they have not been moved. `unseen` are the
    paths of shards that did not answer when the dataset was opened: the facts about them are from an earlier opening.
    `left_out` is what the search for its shards left out. `split` is the split that was asked for, None for all shards.
    `index_again` makes the catalog of a shard again if it is damaged; without it that is an error. `damaged` are files
    of the index that were damaged, and made again, when the dataset was opened.
    `interleaved` has the same shards with other catalogs, those of interleaved samples: only shards that have such
    samples, None if no shard has any.
    """

    interleaved: Dataset | None = None
    left_out: LeftOutFiles = LeftOutFiles()
    damaged: Sequence[str] = ()

    def __init__(
        self,
        source: str,
        shards: Sequence[Shard],
        keys: Keys | str,
        limits: Limits = LIMITS,
        moved_from: str = "",
        unseen: Collection[str] = frozenset(),
        split: str | None = None,
        index_again: Callable[[Shard], None] | None = None,
    ) -> None:
        self.source = source
        self.split = split
        self.moved_from = moved_from
        self.unseen = unseen
        self.limits = limits
        self.index_again = index_again
        self.shards = tuple(shards)
        self.keys = keys
        self._tables: dict[int, Table] = {}
        self.by_name = {os.fsencode(shard.name): position for position, shard in enumerate(self.shards)}

    def in_directory(self, name: str) -> list[int]:
        """The positions of the shards in the directory of a split in `shards/`; empty if there is no such directory."""
        return [position for position, shard in enumerate(self.shards) if shard.directory == f"{name}/"]

    def sources(self) -> Iterator[StoredFile]:
        """The files of all shards."""
        return (shard.source(name) for shard in self.shards for name in shard.files)

    def catalog(self, position: int) -> Catalog:
        """Map the catalog of the shard at a position. One that is damaged is made again first.

        Raises ChangedError if it was replaced since the dataset was opened, and as `Catalog` and `index_again`.
        """
        shard = self.shards[position]
        try:
            catalog = Catalog(shard.catalog, shard.path)
        except FormatError:
            if self.index_again is None:
                raise
            self.index_again(shard)
            catalog = Catalog(shard.catalog, shard.path)
        if dict(catalog.facts.files) != shard.files or catalog.facts.unmeasured != shard.unmeasured:
            raise ChangedError("its catalog was made anew: `touchfs reload`, or mount again", path=shard.path)
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
        table = self._tables.get(position)
        if table is None:
            table = self._tables[position] = self.catalog(position).tables["shards"]
            if len(self._tables) > _TABLES_KEPT:
                del self._tables[next(iter(self._tables))]
        return table

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_tables": {}}

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
        """The values that `touchfs info` and `.touchfs/info` print, by name."""
        return {
            "kind": ", ".join(sorted({kind_name(shard.path, shard.files) for shard in self.shards})),
            "shards": len(self.shards),
            "samples": self.samples,
            "hours": round(self.seconds / 3600, 6) if self.timed or not self.samples else None,
            "samples_of_unknown_duration": self.samples - self.timed,
            "segments": sum(shard.segments for shard in self.shards),
            "bytes": self.size,
            "index_overhead_percent": round(100 * self.overhead, 4),
            "by_key": f"absent: {self.keys}" if isinstance(self.keys, str) else len(self.keys),
            "damaged_samples": sum(shard.damaged for shard in self.shards),
            "shards_with_errors": [shard.name for shard in self.shards if shard.report],
            **({"splits": splits} if (splits := self.splits) else {}),
            **({} if self.interleaved is None else {"interleaved_samples": self.interleaved.samples}),
            **({"left_out": [each._asdict() for each in self.left_out.reasons()]} if self.left_out else {}),
            **({"moved_from": self.moved_from} if self.moved_from else {}),
        }


def counted(number: int, what: str) -> str:
    """A number and a noun: `1 sample`, `2 samples`."""
    return f"{number} {what}{'s' * (number != 1)}"
