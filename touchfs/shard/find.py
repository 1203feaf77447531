"""Find the shards of a dataset.

    a directory     with a modality of TouchNet's (`audio.idx`, `metainfo.bin`, …): that one shard
                    with `_versions`, or named `*.lance`, a Lance dataset: that one shard
                    with a `data.list`: the shards it lists
                    with a list of another tool: what that says its data is (`touchfs.shard.directory.own_list`)
                    with `cuts.000000.jsonl`, …, a Lhotse Shar: each of these; the other files are their fields
                    (`cuts.jsonl` too, if it has fields: `touchfs.shard.shar.files`)
                    with files that are shards: each of them, in name order (`touchfs.shard.containers` has their names;
                    a pair `PREFIX.idx` and `.bin` with any other name is a shard of Megatron-LM)
                    and, after them, the shards of its subdirectories at any depth
                    with `wav.scp`, a data directory of Kaldi's, if there is an audio root: this one shard
    PREFIX.idx      or `PREFIX.bin` or `PREFIX`, if no other file has that name: the one shard
    a .tar, …       the one shard
    a name with braces, as `train-{000..099}.tar`, that no file has: the shards of all its members, also missing ones
    a pattern, as `train-*.tar`, that no file has: the shards of all that match
    another file    a `data.list`, if it looks like one; else an error says what it is

Names decide, and the lists that directories have of their data, so hundreds of shards are found without a read. What is
left out is said, with the reason.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import unquote

from touchfs.errors import FormatError, NotFoundError, SourceError, UsageError
from touchfs.format.braces import BracePattern
from touchfs.format.cache_metadata import METADATA_FILE
from touchfs.format.idx import DATA_SUFFIX, INDEX_SUFFIX
from touchfs.posix.paths import absolute, beneath, check_url, is_url, joinable, resolved, shown, shown_name, speaks_http
from touchfs.shard.containers import (
    DIRECTORY,
    KALDI,
    LANCE,
    MEGATRON,
    PARQUET,
    READS,
    SHAR,
    Container,
    container_named,
    plain_stem,
    single_named,
)
from touchfs.shard.directory.left_out import LeftOutFiles
from touchfs.shard.directory.other_formats import describe, describe_name, read_head
from touchfs.shard.directory.own_list import OwnList, cache_list, read_own_list
from touchfs.shard.directory.splits import in_order, listed_splits, named_splits
from touchfs.shard.lists.data_list import LINE, listed_places
from touchfs.shard.lists.members import (
    directory_of,
    find_members,
    has_wildcards,
    list_directories,
    match_wildcards,
    shared_directories,
    split_wildcards,
)
from touchfs.shard.shar.files import is_shard, list_files
from touchfs.shard.single import LISTS, RECORDINGS, SEGMENTS
from touchfs.shard.tables.lance_files import is_lance_dataset
from touchfs.source.data import DATA, Look, find_type
from touchfs.source.store import FileType, Store, StoredEntry
from touchfs.tables.partition import partitions_of

LIST_NAME, LIST_SUFFIX = "data.list", ".list"
# Written beside the shards by our own writers with --skip-bad: the samples they left out.
SKIPPED_NAME = "skipped.jsonl"
# Deeper directories, and more of them, are a mistake: a link into the whole disk, or pages that a server makes up.
DEPTH_MAX, DIRECTORIES_MAX = 32, 100_000
_NO_SHARD = "not a shard"
_NO_FILE = "a link that leads nowhere, or not a file"
# img2dataset writes both beside each tar: columns of all of its samples, and counts.
_STATISTICS = re.compile(r"(.+)_stats\.json", re.DOTALL)
_DESCRIBES = "describes the samples of the tar beside it: name it to read its rows"


class FoundShard(NamedTuple):
    """A shard: its path, and which kind it is by its name and its directory. A missing one is what it is named like.

    `split` is the split that it is of, "" if of none. `partition` has the values of its directories, if it is a table
    (`touchfs.tables.partition`).
    """

    path: str
    container: Container
    split: str = ""
    partition: str = ""


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
            raise UsageError(f"no split {split!r}: {there if splits else nothing}", path=shown(source))
        return self._replace(shards=shards)


def candidates(source: str, store: Store = DATA, *, locations: Sequence[str] = ()) -> list[str]:
    """The paths that `find` looks at in a directory, or because a list names them; first the directories that it
    lists instead of asking for many paths.
    """
    source = joinable(source)
    kind = find_type(source, store)
    if kind is FileType.DIRECTORY:
        listing = os.path.join(source, LIST_NAME)
        if find_type(listing, store) is not FileType.FILE:
            return [os.path.join(source, name) for name in _names(store.list(source))]
    elif kind is FileType.FILE and not _is_one_shard(source, store) and _index_of(source, store) is None:
        listing = source
        _check_list(source)
    elif (pattern := find_members(source, store)) is not None:
        return [*shared_directories(pattern), *pattern]
    elif kind is None and has_wildcards(source):
        return match_wildcards(source, store)
    else:
        return []
    found = [place for places in listed_places(listing, locations, lambda places: False) for place in places]
    return [*shared_directories(found), *found]


def find(
    source: str,
    silent: Collection[str] = (),
    store: Store | None = None,
    *,
    audio_root: str | None = None,
    locations: Sequence[str] = (),
    split: str | None = None,
) -> Found:
    """The shards of a source, also listed ones that are missing, or those of one split.

    The `candidates` that are `silent` are returned as shards without being accessed. With an `audio_root`,
    directories of Kaldi's are shards. A list may name URLs below one of the `locations`. By default, the store is a
    `Look`.

    Raises UsageError for a URL with a user, for too many names and for a split that there is not, LocationError for a
    list that names another URL, FormatError for a file that is not a dataset, NotFoundError and SourceError.
    """
    check_url(source)
    source = joinable(source)
    left_out = LeftOutFiles(split_wildcards(source)[0].rstrip("/"))
    search = _Search(silent, Look() if store is None else store, audio_root, locations, left_out)
    shards = _described(search.of(source), source, search)
    return Found(shards, search.left_out).of_split(split, source)


def find_shards(
    source: str, *, audio_root: str | None = None, locations: Sequence[str] = (), split: str | None = None
) -> list[str]:
    """The paths of the shards that `find` finds."""
    return [shard.path for shard in find(source, audio_root=audio_root, locations=locations, split=split).shards]


def _described(shards: Sequence[FoundShard], source: str, search: _Search) -> list[FoundShard]:
    """The shards with their splits and the values of their directories: of those below the source if it is a directory,
    as pyarrow has them, else of all.
    """
    directory, is_directory = directory_of(source, search.store), find_type(source, search.store) is FileType.DIRECTORY
    listed = listed_splits([shard.path for shard in shards], search.splits)
    unlisted = [shard for shard, split in zip(shards, listed, strict=True) if not split]
    ends = ("/" if shard.container in (DIRECTORY, LANCE) else "" for shard in unlisted)
    names = (_place(shard.path, directory) or shown_name(shard.path) for shard in unlisted)
    named = iter(named_splits([*map(str.__add__, names, ends)]))
    tables = [shard.path for shard in shards if shard.container.column_types is not None]
    places = (_place(path, directory) if is_directory else _place(absolute(path), "") for path in tables)
    partitions = dict(zip(tables, partitions_of([*map(os.path.dirname, places)]), strict=True))
    return [
        shard._replace(split=split or next(named), partition=partitions.get(shard.path, ""))
        for shard, split in zip(shards, listed, strict=True)
    ]


def _place(path: str, directory: str) -> str:
    """The path below a directory, as a file of this machine would have it: without the escapes of web servers; "" if it
    is not there.
    """
    start = os.path.join(directory, "")
    if not path.startswith(start):
        return ""
    place = path[len(start) :]
    return unquote(place, errors="surrogateescape") if speaks_http(path) else place


def walk(
    directory: str, store: Store, seen: set[str], left_out: LeftOutFiles, depth: int = 0
) -> Iterator[tuple[str, Sequence[StoredEntry], list[str]]]:
    """Yield a directory and all below it that may have shards: its path, its entries, and the paths of the directories
    that follow, which the caller may shorten. None is entered twice: the real paths of those that were are in `seen`.
    """
    real = resolved(directory)
    # A link beside what it leads to is a shard of its own, unless it leads to where we come from.
    if real in seen and (depth != 1 or real == resolved(os.path.dirname(directory))):
        left_out.add(directory, "another link to a directory that is here")
        return
    if depth > DEPTH_MAX:
        left_out.add(directory, f"over {DEPTH_MAX} directories deep: name it")
        return
    if len(seen) == DIRECTORIES_MAX:
        raise FormatError(f"has over {DIRECTORIES_MAX:,} directories: name one of them", path=shown(directory))
    seen.add(real)
    try:
        entries = store.list(directory)
    except (NotFoundError, SourceError) as error:
        left_out.add(directory, error.message)
        return
    below = _subdirectories(directory, entries)
    yield directory, entries, below
    for path in below:
        yield from walk(path, store, seen, left_out, depth + 1)


@dataclass(slots=True)
class _Search:
    """One search, with the arguments of `find`. `seen` are the real paths of the directories that it entered, and
    `splits` the splits that lists have of files and directories.
    """

    silent: Collection[str]
    store: Store
    audio_root: str | None
    locations: Sequence[str]
    left_out: LeftOutFiles
    seen: set[str] = field(default_factory=set)
    splits: dict[str, str] = field(default_factory=dict)

    def of(self, source: str) -> list[FoundShard]:
        """The shards of a source. Raises as `find`."""
        if (pattern := find_members(source, self.store)) is not None:
            return self._of_members(pattern, source)
        try:
            kind = self.store.stat(source).type
        except NotFoundError:
            kind = None
        if kind is not FileType.DIRECTORY:
            return self._of_file(source, kind)
        entries = self.store.list(source)
        shards, is_listed = self._of_directory(source, entries)
        if not shards and not is_listed:
            raise self._nothing(source)
        return shards

    def _nothing(self, source: str) -> NotFoundError:
        others = f"; {self.left_out}" if self.left_out else ""
        return NotFoundError(f"no shards here: {READS}{others}", path=shown(source))

    def _of_file(self, source: str, kind: FileType | None) -> list[FoundShard]:
        """The shards of a source that is not a directory."""
        if kind is FileType.FILE and self.audio_root is not None and os.path.basename(source) == RECORDINGS:
            return [FoundShard(source, KALDI)]
        if kind is FileType.FILE and _is_one_shard(source, self.store):
            read_head(source)
            return [self._named(source)]
        if (index := _index_of(source, self.store)) is not None:
            return [FoundShard(index, MEGATRON)]
        if kind is FileType.FILE:
            _check_list(source)
            return self._listed(source)
        if kind is FileType.OTHER:
            raise NotFoundError("neither a file nor a directory", path=shown(source))
        if has_wildcards(source):
            return self._of_wildcards(source)
        raise NotFoundError("no such file or directory", path=shown(source))

    def _of_members(self, pattern: BracePattern, source: str) -> list[FoundShard]:
        """The shards of all members of a pattern. A missing member is a shard that is missing, unless all are."""
        list_directories(pattern, self.store, self.silent)
        shards, missing = list[FoundShard](), 0
        for name in pattern:
            if not is_url(source) and (is_url(name) or "//" in name[max(0, len(pattern.prefix) - 1) :]):
                message = "the braces hold whole paths: write these into a data.list, one a line"
                raise UsageError(message, path=shown(source))
            kind = None if name in self.silent else find_type(name, self.store)
            if name in self.silent or (kind is FileType.FILE and _is_one_shard(name, self.store)):
                shards.append(self._named(name))
            elif kind is not None or _index_of(name, self.store) is not None or has_wildcards(name):
                shards += self.of(name)
            else:
                shards.append(self._named(name))
                missing += 1
        if missing == pattern.count:
            first = next(iter(pattern))
            with suppress(NotFoundError):
                self.store.stat(first)  # raises SourceError if all we know is that we may not look
            message = f"none of its {missing:,} members exists, the first is {shown(first)}"
            raise NotFoundError(message, path=shown(source))
        return shards

    def _of_wildcards(self, source: str) -> list[FoundShard]:
        """The shards of all files and directories that match a pattern."""
        paths = match_wildcards(source, self.store)
        if not paths:
            raise NotFoundError("nothing here matches this pattern", path=shown(source))
        shards = list[FoundShard]()
        for path in paths:
            kind = None if path in self.silent else find_type(path, self.store)
            if path in self.silent or (kind is FileType.FILE and _is_one_shard(path, self.store)):
                shards.append(self._named(path))
            elif kind is FileType.DIRECTORY:
                if resolved(path) not in self.seen:
                    shards += self._of_directory(path, self.store.list(path))[0]
            elif (index := _index_of(path, self.store)) == path:
                shards.append(FoundShard(index, MEGATRON))
            else:
                self.left_out.add(path, describe_name(path) or _NO_SHARD)
        if not shards:
            raise self._nothing(source)
        return list(dict.fromkeys(shards))  # a file may match that is in a directory which matches

    def _of_directory(self, source: str, entries: Sequence[StoredEntry]) -> tuple[list[FoundShard], bool]:
        """The shards of a directory that a user names; True if it has a list of them, which may be empty."""
        self.seen.add(resolved(source))
        shards, below, is_listed = self._in(source, entries)
        for path in below:
            if path in self.silent:
                shards.append(self._named(path))
                continue
            for directory, each, following in walk(path, self.store, self.seen, self.left_out, 1):
                try:
                    found, following[:], _ = self._in(directory, each)
                except FormatError as error:
                    self.left_out.add(directory, error.message)
                    following.clear()
                else:
                    shards += found
        return shards, is_listed

    def _in(self, directory: str, entries: Sequence[StoredEntry]) -> tuple[list[FoundShard], list[str], bool]:
        """The shards in a directory itself, the paths of the directories to look into, and True if a list says that."""
        if (shard := self._directory_shard(directory, entries)) is not None:
            return [shard], [], True
        names = {entry.name for entry in entries}
        own = cache_list(directory) if METADATA_FILE in names else None
        if own is None and LIST_NAME in names:
            listing = os.path.join(directory, LIST_NAME)
            if find_type(listing, self.store) is FileType.FILE:
                return self._listed(listing), [], True
        own = own or read_own_list(directory, entries, self.store)
        if own is not None:
            self._leave_out_others(directory, entries, own)
            files = {name: beneath(directory, name) for name in own.files}
            directories = {name: os.path.join(directory, name) for name in own.directories}
            self.splits |= {(files | directories)[name]: split for name, split in own.splits.items()}
            return [*map(self._named, files.values())], [*directories.values()], not own.directories
        paths = {os.path.join(directory, entry.name): entry for entry in entries if entry.name[0] != "."}
        silent = [path for path in paths if path in self.silent]
        there = [entry for path, entry in paths.items() if path not in self.silent]
        return self._files(directory, there), sorted([*silent, *_subdirectories(directory, there)]), False

    def _files(self, directory: str, entries: Sequence[StoredEntry]) -> list[FoundShard]:
        """The files of a directory that are shards, of those in `entries`. Others are left out, unless they belong to
        one.
        """
        from touchfs.shard.megatron import data_stem, find_prefixes  # a dataset of one file needs none of it

        names = sorted(each.name for each in entries if each.name != SKIPPED_NAME and each.is_file())
        for each in entries:
            if not (each.is_file() or each.is_dir()):
                self.left_out.add(os.path.join(directory, each.name), _NO_FILE)
        prefixes = [os.path.basename(path) for path in find_prefixes(directory, names)]
        shar = list_files(directory, names)
        found: dict[str, Container] = dict.fromkeys(prefixes, MEGATRON)
        if shar.shards:  # the first shard shows or reports all other files
            found |= dict.fromkeys(shar.cuts, SHAR)
            found |= {name: container for name in shar.lines if (container := single_named(name))}
        else:
            single = {name: container for name in names if (container := single_named(name))}
            tars = {plain_stem(name) for name, container in single.items() if container.keys_are_paths}
            stems = {name.removesuffix(INDEX_SUFFIX) for name in prefixes}
            known = {*prefixes, *(LISTS if SEGMENTS in names else ())}
            for name in names:
                if _stem_of_described(name, single.get(name)) in tars:
                    self.left_out.add(os.path.join(directory, name), _DESCRIBES)
                elif name in single:
                    found[name] = single[name]
                elif not (name in known or _is_beside(name, single) or data_stem(name) in stems):
                    self.left_out.add(os.path.join(directory, name), describe_name(name) or _NO_SHARD)
        return [FoundShard(os.path.join(directory, name), found[name]) for name in sorted(found)]

    def _leave_out_others(self, directory: str, entries: Iterable[StoredEntry], own: OwnList) -> None:
        known = {name.partition("/")[0] for name in (*own.files, *own.directories)}
        names = sorted(entry.name for entry in entries if entry.name not in known and entry.name[0] != ".")
        for name in (*filter(single_named, names), *own.others):
            self.left_out.add(os.path.join(directory, name), own.reason)

    def _directory_shard(self, path: str, entries: Sequence[StoredEntry]) -> FoundShard | None:
        """The one shard that a directory is, or None."""
        if (container := directory_kind(path, entries)) is not None:
            return FoundShard(path, container)
        if self.audio_root is not None and any(each.name == RECORDINGS and each.is_file() for each in entries):
            return FoundShard(os.path.join(path, RECORDINGS), KALDI)
        return None

    def _listed(self, listing: str) -> list[FoundShard]:
        def is_there(places: Sequence[str]) -> bool:
            return any(place not in self.silent and find_type(place, self.store) is not None for place in places)

        found = list(listed_places(listing, self.locations, is_there))
        list_directories((place for places in found for place in places), self.store, self.silent)
        return [self._named(self._locate(places)) for places in found]

    def _locate(self, places: Sequence[str]) -> str:
        """The first of the places where a shard may be; if nothing is at any of them, the one where it should be."""
        for place in places:
            if place in self.silent or find_type(place, self.store) in (FileType.DIRECTORY, FileType.FILE):
                return place
            if single_named(place) is None and (index := _index_of(place, self.store)) is not None:
                return index
        return places[min(1, len(places) - 1)]

    def _named(self, path: str) -> FoundShard:
        """The shard at a path that is known to be one. Its name decides, or its directory if it is of a Shar."""
        is_shar = path not in self.silent and is_shard(path, self.store)
        return FoundShard(path, SHAR if is_shar else container_named(path) or DIRECTORY)


def directory_kind(path: str, entries: Sequence[StoredEntry]) -> Container | None:
    """Which kind of shard the directory at a path is as a whole; None if it is none."""
    from touchfs.shard.touchnet import is_touchnet_shard  # a dataset of one file needs none of it

    if is_touchnet_shard(entries):
        return DIRECTORY
    return LANCE if is_lance_dataset(path, entries) else None


def _subdirectories(directory: str, entries: Iterable[StoredEntry]) -> list[str]:
    """The paths of the directories in one with these entries, sorted, but hidden ones."""
    return sorted(os.path.join(directory, each.name) for each in entries if each.name[0] != "." and each.is_dir())


def _is_one_shard(path: str, store: Store) -> bool:
    return single_named(path) is not None or is_shard(path, store)


def _names(entries: Iterable[StoredEntry]) -> list[str]:
    """Names in a directory, sorted, without hidden files: they are still being written."""
    return sorted(entry.name for entry in entries if not entry.name.startswith("."))


def _stem_of_described(name: str, container: Container | None) -> str | None:
    """The stem of the tar whose samples a file of this name describes if it is beside it; None for other names."""
    if container is PARQUET:
        return plain_stem(name)
    return match[1] if (match := _STATISTICS.fullmatch(name)) else None


def _is_beside(name: str, shards: Collection[str]) -> bool:
    """True for the name of a shard with more suffixes: an index or checksums of it."""
    return any(name[:end] in shards for end, character in enumerate(name) if character == ".")


def _index_of(source: str, store: Store) -> str | None:
    """The path of the `PREFIX.idx` that a source other than a directory refers to, or None."""
    kind = find_type(source, store)
    if source.endswith(INDEX_SUFFIX) and kind is FileType.FILE:
        return source
    if source.endswith(DATA_SUFFIX) or kind is None:
        index = source.removesuffix(DATA_SUFFIX) + INDEX_SUFFIX
        return index if find_type(index, store) is FileType.FILE else None
    return None


def _check_list(path: str) -> None:
    """Raise FormatError, naming the file's format, unless the file is named or looks like a list of shards."""
    if path.endswith(LIST_SUFFIX):
        return
    head = read_head(path)
    if (what := describe(path, head)) is not None:
        raise FormatError(f"is {what}; {READS}", path=shown(path))
    first = next(filter(None, map(bytes.strip, head.split(b"\n"))), b"")
    from touchfs.shard.touchnet import MODALITIES  # only lists need it

    match = LINE.fullmatch(first)
    if match is None or MODALITIES.isdisjoint(match[2].decode().split("+")):
        raise FormatError(f"is not a dataset: line 1 is not `SHARD_DIR DATATYPES`; {READS}", path=shown(path))
