"""`by-key/`: all files of all samples that have a key, in one directory, as symbolic links into `shards/`.

A link is called `<key>.<extension>`, or `<key>.<column>.<extension>` for a file in a directory of its key, with the
slashes of the key quoted; the nth sample of a key, in dataset order, has `~n` before its extensions. The key is the
shown key of the sample. If it differs from the raw key (`a` for the archive path `./a`), a lookup finds the raw key,
too. If two keys produce the same name (`a` with a field `b.wav`, `a.b` with a field `wav`), the longer key gets it, and
the other one gets a number; numbers skip names that another key has without a number. A lookup hashes all possible keys
of a name (`touchfs.tree.links.possible_keys`).

A listing follows the order of the shards' rows and needs a key lookup for very few of them: the index of keys knows
which keys are repeated, and the catalogs know whether two keys can produce the same name. So a listing takes about as
long as one of the same files in `shards/`.

If more than `HOLDERS_MAX` samples share a key, only the first `HOLDERS_MAX` are here: such a key identifies nothing.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from typing import NamedTuple

from touchfs.catalog.keys import Keys
from touchfs.catalog.table import DIRECTORY, NO_SAMPLE, STORED, UNKEYED, Table
from touchfs.core.errors import ChangedError, FormatError, UsageError
from touchfs.core.extent import Content
from touchfs.core.names import NAME_MAX, flat_name, hash_of, quote
from touchfs.posix.bounded_cache import BoundedCache
from touchfs.tree.entry import Entry
from touchfs.tree.inode import ROOT, ROW_BITS, ROW_MASK, pack, unpack
from touchfs.tree.links.possible_keys import hash_of_key, plain_key, possible_hashes, possible_keys, unnumbered_keys
from touchfs.tree.open_shards import NonblockingShards, OpenShards, TreeShard

NAME = "by-key"
HOLDERS_MAX = 1000
_RUNS_KEPT = 64


def _suffix(table: Table, row: int) -> bytes:
    """The part of a file's name after the key, with its dot: `.image.jpg` of `<key>/image.jpg`."""
    size, name = table.suffix[row], table.name(row)
    return name[len(name) - size :] if size <= len(name) else b"." + name


class _Sample(NamedTuple):
    """A sample and the rows of its files. `key` is its shown key."""

    shard: TreeShard
    ordinal: int
    rows: list[int]
    key: str

    @property
    def table(self) -> Table:
        return self.shard.tables["shards"]

    def suffix(self, row: int) -> bytes:
        return _suffix(self.table, row)

    @property
    def raw_key(self) -> str:
        return self.table.key(self.rows[0])

    def names(self, number: int) -> list[bytes]:
        """The names of the sample's files if it is sample `number` of its key."""
        return self.names_of(self.key, number)

    def names_of(self, key: str, number: int) -> list[bytes]:
        return [flat_name(key, self.suffix(row), number) for row in self.rows]


class ByKey:
    """The directory `by-key`, a `Subtree`. Its inodes have the view `number`.

    Without `listed` a listing is empty, but lookups still find every link.
    """

    def __init__(self, shards: OpenShards, keys: Keys, number: int, *, listed: bool) -> None:
        self._shards = shards
        self._keys = keys
        self._is_listed = listed
        self._root = Entry(pack(number, 0, 0), stat.S_IFDIR, 0, shards.mtime_ns)
        self._number = number
        self._runs: BoundedCache[int, list[tuple[_Sample, int]]] = BoundedCache(_RUNS_KEPT)

    def nonblocking(self, shards: NonblockingShards) -> ByKey:
        return ByKey(shards, self._keys, self._number, listed=self._is_listed)

    def entry(self, inode: int) -> Entry:
        if inode == self._root.inode:
            return self._root
        return self._link_entry(*self._row(inode))

    def _row(self, inode: int) -> tuple[TreeShard, int]:
        _, shard_id, row = unpack(inode)
        shard = self._shards.get(shard_id)
        table = shard.tables["shards"]
        if row >= table.rows or table.kind[row] == DIRECTORY:
            raise ChangedError("this inode is not of this mount")
        return shard, row

    def _link_entry(self, shard: TreeShard, row: int) -> Entry:
        inode = pack(self._number, shard.shard_id, row)
        return Entry(inode, stat.S_IFLNK, len(_target(shard, row)), shard.mtime_ns)

    def find(self, directory: int, name: bytes, *, is_guest: bool = False) -> Entry | None:
        if directory != self._root.inode:
            self._row(directory)
            return None
        for hash_ in possible_hashes(name):
            for sample, number in self._numbered(hash_):
                for row, file_name in zip(sample.rows, sample.names(number), strict=True):
                    if file_name == name:
                        return self._link_entry(sample.shard, row)
        return self._find_raw(name)

    def _find_raw(self, name: bytes) -> Entry | None:
        """Find a file by the raw key of its sample, where that differs from the shown key."""
        for key in possible_keys(name):
            plain = plain_key(key)
            if plain == key:
                continue
            number = 0
            for sample in self._samples(hash_of_key(plain)):
                if quote(sample.raw_key) != key:
                    continue
                number += 1
                for row, file_name in zip(sample.rows, sample.names_of(sample.raw_key, number), strict=True):
                    if file_name == name:
                        return self._link_entry(sample.shard, row)
        return None

    def entries(self, directory: int, after: int) -> Iterator[tuple[bytes, Entry, int]]:
        if directory != self._root.inode:
            self._row(directory)
            raise UsageError("not a directory")
        if self._is_listed:
            first, row = after >> ROW_BITS, after & ROW_MASK
            for shard_id in self._shards.ids(first):
                yield from self._links(self._shards.get(shard_id), row if shard_id == first else 0)

    def _links(self, shard: TreeShard, after: int) -> Iterator[tuple[bytes, Entry, int]]:
        """The links to the files of a shard after the row `after`. A link's cookie is the shard's id and the row."""
        table, mtime_ns = shard.tables["shards"], shard.mtime_ns
        kinds, keyed, suffixes, path_of = table.kind, table.keyed, table.suffix, table.path
        inode, cookie, before = pack(self._number, shard.shard_id, 0), shard.shard_id << ROW_BITS, len(_above(shard))
        number_of = self._numbers(shard)
        for row in range(after + 1, table.rows):
            how = keyed[row]
            if how == UNKEYED or kinds[row] == DIRECTORY:
                continue
            path = path_of(row)
            name, suffix = path.replace(b"/", b"%2F"), path[len(path) - suffixes[row] :]
            if suffix[:1] == b"/":
                name, suffix = name[: len(name) - len(suffix) - 2] + b"." + suffix[1:], b"." + suffix[1:]
            is_plain = how != STORED  # nearly always: the path is the unchanged key plus the suffix
            number = 1
            if number_of is not None:
                key = name[: len(name) - len(suffix)] if is_plain else quote(table.shown_key(row))
                number = number_of(row, key)
                if not number:
                    continue
            if not is_plain or number > 1 or len(name) > NAME_MAX:
                name = flat_name(table.shown_key(row), suffix, number)
            yield name, Entry(inode + row, stat.S_IFLNK, before + len(path), mtime_ns), cookie + row

    def _numbers(self, shard: TreeShard) -> Callable[[int, bytes], int] | None:
        """A function from a row and its quoted key to the number of the row's sample, 0 if it has no names here. None
        if all samples of the shard have the number 1.
        """
        keys, may_clash = self._keys, self._shards.dataset.names_may_clash
        if not may_clash and not len(keys.repeated):
            return None
        table, known = shard.tables["shards"], (NO_SAMPLE, 0)

        def number_of(row: int, key: bytes) -> int:
            nonlocal known
            ordinal = table.ordinal[row]
            if ordinal != known[0]:
                hash_, number = hash_of(key), 1
                if keys.is_repeated(hash_) or (may_clash and self._may_be_taken(table, ordinal, key)):
                    number = self._number_of(hash_, shard, ordinal)
                known = ordinal, number
            return known[1]

        return number_of

    def _may_be_taken(self, table: Table, ordinal: int, key: bytes) -> bool:
        """True if a longer key may produce the name of a file of the sample with this quoted key."""
        for row in table.files(ordinal):
            name = key + _suffix(table, row)
            if len(name) > NAME_MAX or any(
                len(h) > len(key) and self._keys.find(hash_of(h)) for h in unnumbered_keys(name)
            ):
                return True
        return False

    def _number_of(self, hash_: int, shard: TreeShard, ordinal: int) -> int:
        for sample, number in self._numbered(hash_):
            if sample.shard.shard_id == shard.shard_id and sample.ordinal == ordinal:
                return number
        return 0

    def parent(self, directory: int) -> int:
        self.entry(directory)
        return ROOT

    def path(self, inode: int) -> str:
        return self._shards.path(NAME, unpack(inode)[1])

    def is_cacheable(self, directory: int) -> bool:
        return False  # a new shard can change the target of a name

    def content(self, inode: int) -> Content:
        self.entry(inode)
        raise UsageError("not a file")

    def attributes(self, inode: int) -> dict[str, str]:
        self.entry(inode)
        return {}  # the kernel never requests xattrs of a symbolic link

    def link(self, inode: int) -> bytes:
        if inode == self._root.inode:
            raise UsageError("not a symbolic link")
        return _target(*self._row(inode))

    def _samples(self, hash_: int) -> Iterator[_Sample]:
        for place in self._keys.find(hash_)[:HOLDERS_MAX]:
            position, ordinal = self._keys.holder(place)
            shard = self._shards.at(position)
            table = shard.tables["shards"]
            rows = table.files(ordinal)
            if not rows:
                raise FormatError("an entry is damaged: index with --force", path=self._keys.path)
            yield _Sample(shard, ordinal, rows, table.shown_key(rows[0]))

    def _numbered(self, hash_: int) -> list[tuple[_Sample, int]]:
        """The samples of a hash in dataset order, each with the number in its names."""
        cached = self._runs.find(hash_)
        if cached is not None:
            return cached
        numbered: list[tuple[_Sample, int]] = []
        last: dict[str, int] = {}
        for sample in self._samples(hash_):
            number = last.get(sample.key, 0) + 1
            while self._is_taken(sample, number):
                number += 1
            last[sample.key] = number
            numbered.append((sample, number))
        self._runs.keep(hash_, numbered)
        return numbered

    def _is_taken(self, sample: _Sample, number: int) -> bool:
        """True if another key has one of these names without a number. Unless the name is numbered, only longer keys
        count.
        """
        own = len(quote(sample.key))
        return any(
            name in other.names(1)
            for name in sample.names(number)
            for key in unnumbered_keys(name)
            if number > 1 or len(key) > own
            for other in self._samples(hash_of_key(key))
            if other.key != sample.key
        )


def _target(shard: TreeShard, row: int) -> bytes:
    return _above(shard) + shard.tables["shards"].path(row)


def _above(shard: TreeShard) -> bytes:
    return b"../%b/" % os.fsencode(shard.shard.path_in("shards"))
