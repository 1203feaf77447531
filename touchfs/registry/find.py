"""Find the shards of a dataset.

    a directory     with a modality of TouchNet's (`audio.idx`, `metainfo.bin`, …): that one shard
                    with `_versions`, or named `*.lance`, a Lance dataset: that one shard
                    with a `data.list`: the shards it lists
                    with a list of another tool: what that says its data is (`touchfs.registry.directory.own_list`)
                    with `cuts.000000.jsonl`, …, a Lhotse Shar: each of these; the other files are their fields
                    (`cuts.jsonl` too, if it has fields: `touchfs.containers.shar.files`)
                    with files that are shards: each of them, in name order (`touchfs.registry.containers` has their
                    names; of a zip archive the name does not decide, so it is one only if nothing else here is;
                    a pair `PREFIX.idx` and `.bin` with any other name is a shard of Megatron-LM)
                    and, after them, the shards of its subdirectories at any depth
                    with `wav.scp`, a data directory of Kaldi's, if there is an audio root: this one shard
    PREFIX.idx      or `PREFIX.bin` or `PREFIX`, if no other file has that name: the one shard
    a .tar, …       the one shard
    a name with braces, as `train-{000..099}.tar`, that no file has: the shards of all its members, also missing ones
    a pattern, as `train-*.tar`, that no file has: the shards of all that match
    a .json         a list of audio, an object on each line, as NeMo's; in a directory only if nothing else is a shard
    another file    a `data.list`, if it looks like one; else an error says what it is

Names decide, and the lists that directories have of their data, so hundreds of shards are found without a read. What is
left out is said, with the reason. The rules are in one file, as each depends on which others have taken a name.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from shlex import quote
from typing import TYPE_CHECKING

from touchfs.containers.shar.files import list_files
from touchfs.core.errors import FormatError, NotFoundError, SourceError, UsageError
from touchfs.core.location import Location
from touchfs.core.urls import shown
from touchfs.format.braces import BracePattern
from touchfs.format.cache_metadata import METADATA_FILE
from touchfs.format.idx import DATA_SUFFIX, INDEX_SUFFIX
from touchfs.registry.containers import (
    AUDIO_LIST,
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
from touchfs.registry.directory.data_list import LINE, listed_places
from touchfs.registry.directory.left_out import LeftOutFiles
from touchfs.registry.directory.members import (
    find_members,
    has_wildcards,
    list_directories,
    match_wildcards,
    split_wildcards,
)
from touchfs.registry.directory.other_formats import describe, describe_name, is_loose, read_head
from touchfs.registry.directory.own_list import OwnList, cache_list, read_own_list
from touchfs.registry.found import Found, FoundShard, described
from touchfs.registry.open import container_at
from touchfs.shard.single import LISTS, MANIFEST, OTHER_LISTS, RECORDINGS, SEGMENTS, TAR_OF_NEMO
from touchfs.source.data import DATA, Look, find_type
from touchfs.source.store import FileType, Store, StoredEntry
from touchfs.tables.shards.lance_files import is_lance_dataset

if TYPE_CHECKING:
    from touchfs.registry.directory.audio_lists import AudioList

LIST_NAME, LIST_SUFFIX = "data.list", ".list"
# Written beside the shards by our own writers with --skip-bad: the samples they left out.
SKIPPED_NAME = "skipped.jsonl"
# Deeper directories, and more of them, are a mistake: a link into the whole disk, or pages that a server makes up.
DEPTH_MAX, DIRECTORIES_MAX = 32, 100_000
_NO_SHARD = "not a shard"
_A_KALDI_DIRECTORY = "a Kaldi data directory"
# NeMo's, beside its manifest of all tars.
_MANIFESTS = "sharded_manifests"
_NO_FILE = "a link that leads nowhere, or not a file"
# img2dataset writes both beside each tar: columns of all of its samples, and counts.
_STATISTICS = re.compile(r"(.+)_stats\.json", re.DOTALL)
_DESCRIBES = "describes the samples of the tar beside it: name it to read its rows"


def candidates(source: Location, store: Store = DATA, *, locations: Sequence[str] = ()) -> list[str]:
    """The paths that `find` looks at in a directory, or because a list names them."""
    path = source.path
    kind = find_type(path, store)
    if kind is FileType.DIRECTORY:
        listing = os.path.join(path, LIST_NAME)
        if find_type(listing, store) is not FileType.FILE:
            return [os.path.join(path, name) for name in _names(store.list(path))]
    elif kind is FileType.FILE and _single(path, store) is None and _index_of(path, store) is None:
        listing = path
        _check_list(path)
    elif (pattern := find_members(source, store)) is not None:
        return [*pattern]
    elif kind is None and has_wildcards(source):
        return match_wildcards(source, store)
    else:
        return []
    return [place for places in listed_places(listing, locations, lambda places: False) for place in places]


def find(
    source: Location,
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

    Raises UsageError for too many names and for a split that there is not, LocationError for a list that names another
    URL, FormatError for a file that is not a dataset, NotFoundError and SourceError.
    """
    left_out = LeftOutFiles(split_wildcards(source)[0].rstrip("/"))
    search = _Search(silent, Look() if store is None else store, audio_root, locations, left_out)
    shards = described(search.of(source), source, search.store, search.splits)
    for other in dict.fromkeys(search.undecided):
        what = describe_name(other.path) or f"{other.container.magics[0][1]} beside other shards: name it"
        left_out.add(other.path, what)
    return Found(shards, search.left_out).of_split(split, source.path)


def find_shards(source: str, *, locations: Sequence[str] = (), split: str | None = None) -> list[str]:
    """The paths of the shards that `find` finds at what a user names. Raises UsageError for a URL with a user."""
    return [shard.path for shard in find(Location.parse(source), locations=locations, split=split).shards]


def walk(
    directory: str, store: Store, seen: set[str], left_out: LeftOutFiles, depth: int = 0
) -> Iterator[tuple[str, Sequence[StoredEntry], list[str]]]:
    """Yield a directory and all below it that may have shards: its path, its entries, and the paths of the directories
    that follow, which the caller may shorten. None is entered twice: the real paths of those that were are in `seen`.
    """
    real = Location.of(directory).resolved
    # A link beside what it leads to is a shard of its own, unless it leads to where we come from.
    if real in seen and (depth != 1 or real == Location.of(os.path.dirname(directory)).resolved):
        left_out.add(directory, "another link to a directory that is here")
        return
    if depth > DEPTH_MAX:
        left_out.add(directory, f"over {DEPTH_MAX} directories deep: name it")
        return
    if len(seen) == DIRECTORIES_MAX:
        raise FormatError(f"has over {DIRECTORIES_MAX:,} directories: name one of them", path=directory)
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
    """One search, with the arguments of `find`. `seen` are the real paths of the directories that it entered, `splits`
    the splits that lists have of files and directories, and `undecided` the files that are shards only if nothing else
    is. `kaldi` has the `wav.scp` that are not shown, by their paths, and `loose` is a loose file.
    """

    silent: Collection[str]
    store: Store
    audio_root: str | None
    locations: Sequence[str]
    left_out: LeftOutFiles
    seen: set[str] = field(default_factory=set)
    splits: dict[str, str] = field(default_factory=dict)
    undecided: list[FoundShard] = field(default_factory=list)
    kaldi: dict[str, AudioList] = field(default_factory=dict)
    loose: str = ""

    def of(self, source: Location) -> list[FoundShard]:
        if (pattern := find_members(source, self.store)) is not None:
            return self._of_members(pattern, source)
        try:
            kind = self.store.stat(source.path).type
        except NotFoundError:
            kind = None
        if kind is not FileType.DIRECTORY:
            return self._of_file(source, kind)
        shards, is_listed = self._of_directory(source)
        if not shards and not is_listed and not (shards := self._decide()):
            raise self._nothing(source.path)
        return shards

    def _decide(self) -> list[FoundShard]:
        """The files whose names did not decide, where nothing else is a shard. The first one of a kind tells what all
        of these are.
        """
        found, self.undecided = list(dict.fromkeys(self.undecided)), []
        first = {shard.container: shard for shard in reversed(found)}
        what = {container: self._instead(shard) for container, shard in first.items()}
        for shard in found:
            if what[shard.container]:
                self.left_out.add(shard.path, what[shard.container])
        return [shard for shard in found if not what[shard.container]]

    def _instead(self, shard: FoundShard) -> str:
        if (instead := shard.container.instead) is None or shard.path in self.silent:
            return ""
        return instead(shard.path)

    def _nothing(self, source: str) -> NotFoundError:
        if self.kaldi:
            first, *others = self.kaldi.values()
            advice = first._replace(paths=[path for each in (first, *others) for path in each.paths]).advice
            where = os.path.dirname(first.path)
            where_else = "" if where == source else f"no shards here, but {shown(where)} "
            return NotFoundError(f"{where_else}is {_A_KALDI_DIRECTORY}: {advice}", path=source)
        if self.loose and not Location.of(source).is_url:
            tar = quote(f"{os.path.basename(source) or 'samples'}.tar")
            make = f"`tar -cf {tar} -C {quote(source)} .` makes a shard of them"
            return NotFoundError(f"no shards here, but loose files, as {self.loose}: {make}", path=source)
        left_out = f"; {self.left_out}" if self.left_out else ""
        return NotFoundError(f"no shards here: {READS}{left_out}", path=source)

    def _of_file(self, source: Location, kind: FileType | None) -> list[FoundShard]:
        path = source.path
        if kind is FileType.FILE and os.path.basename(path) == RECORDINGS:
            if self.audio_root is None:
                raise FormatError(f"is {_A_KALDI_DIRECTORY}: {self._kaldi_list(path).advice}", path=path)
            return [FoundShard(source, KALDI)]
        if kind is FileType.FILE and (container := _single(path, self.store)) is not None:
            read_head(path)
            if os.path.basename(path) == MANIFEST and self.audio_root is None and self._has_tars(source):
                directory = quote(shown(os.path.dirname(path) or os.curdir))
                raise FormatError(
                    f"is the manifest of the tars beside it: name their directory, {directory}", path=path
                )
            if what := self._instead(shard := FoundShard(source, container)):
                raise FormatError(f"is {what}; {READS}", path=path)
            return [shard]
        if (index := _index_of(path, self.store)) is not None:
            return [FoundShard(Location.of(index), MEGATRON)]
        if kind is FileType.FILE:
            _check_list(path)
            return self._listed(path)
        if kind is FileType.OTHER:
            raise NotFoundError("neither a file nor a directory", path=path)
        if has_wildcards(source):
            return self._of_wildcards(source)
        self.store.stat(path)  # raises NotFoundError
        raise NotFoundError("no such file or directory", path=path)

    def _has_tars(self, manifest: Location) -> bool:
        names = _names(self.store.list(os.path.dirname(manifest.absolute.path)))
        return any(map(TAR_OF_NEMO.fullmatch, names))

    def _of_members(self, pattern: BracePattern, source: Location) -> list[FoundShard]:
        """The shards of all members of a pattern. A missing member is a shard that is missing, unless all are."""
        list_directories(pattern, self.store, self.silent)
        shards, missing = list[FoundShard](), 0
        for name in pattern:
            member = Location.of(name)
            if not source.is_url and (member.is_url or "//" in name[max(0, len(pattern.prefix) - 1) :]):
                message = "the braces hold whole paths: write these into a data.list, one a line"
                raise UsageError(message, path=source.path)
            kind = None if name in self.silent else find_type(name, self.store)
            if name in self.silent:
                shards.append(self._named(name))
            elif kind is FileType.FILE and (container := _single(name, self.store)) is not None:
                shards.append(FoundShard(member, container))
            elif kind is not None or _index_of(name, self.store) is not None or has_wildcards(member):
                shards += self.of(member)
            else:
                shards.append(self._named(name))
                missing += 1
        if missing == pattern.count:
            first = next(iter(pattern))
            with suppress(NotFoundError):
                self.store.stat(first)  # raises SourceError if all we know is that we may not look
            message = f"none of its {missing:,} members exists, the first is {shown(first)}"
            raise NotFoundError(message, path=source.path)
        return shards

    def _of_wildcards(self, source: Location) -> list[FoundShard]:
        """The shards of all files and directories that match a pattern."""
        paths = match_wildcards(source, self.store)
        if not paths:
            raise NotFoundError("nothing here matches this pattern", path=source.path)
        shards = list[FoundShard]()
        for path in paths:
            kind, found = None if path in self.silent else find_type(path, self.store), Location.of(path)
            if path in self.silent:
                shards.append(self._named(path))
            elif kind is FileType.FILE and (container := _single(path, self.store)) is not None:
                (shards if container.instead is None else self.undecided).append(FoundShard(found, container))
            elif kind is FileType.DIRECTORY:
                if found.resolved not in self.seen:
                    shards += self._of_directory(found)[0]
            elif _index_of(path, self.store) == path:
                shards.append(FoundShard(found, MEGATRON))
            else:
                self.left_out.add(path, describe_name(path) or _NO_SHARD)
        if not shards and not (shards := self._decide()):
            raise self._nothing(source.path)
        return list(dict.fromkeys(shards))  # a file may match that is in a directory which matches

    def _of_directory(self, source: Location) -> tuple[list[FoundShard], bool]:
        """The shards of a directory that a user names; True if it has a list of them, which may be empty."""
        self.seen.add(source.resolved)
        shards, below, is_listed = self._in(source.path, self.store.list(source.path))
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
            files = {name: Location.of(directory).beneath(name) for name in own.files}
            directories = {name: os.path.join(directory, name) for name in own.directories}
            self.splits |= {(files | directories)[name]: split for name, split in own.splits.items()}
            return [*map(self._named, files.values())], [*directories.values()], not own.directories
        paths = {os.path.join(directory, entry.name): entry for entry in entries if entry.name[0] != "."}
        silent = [path for path in paths if path in self.silent]
        there = [entry for path, entry in paths.items() if path not in self.silent]
        below = [path for path in _subdirectories(directory, there) if not _repeats(path, names)]
        return self._files(directory, there), sorted([*silent, *below]), False

    def _files(self, directory: str, entries: Sequence[StoredEntry]) -> list[FoundShard]:
        """The files of a directory that are shards, of those in `entries`. Others are left out, unless they belong to
        one.
        """
        from touchfs.containers.touchnet.megatron import (  # a dataset of one file needs none of it
            data_stem,
            find_prefixes,
        )

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
            tars = {plain_stem(name) for name, each in single.items() if each.keys_are_paths and each.instead is None}
            described = {name for name in names if _stem_of_described(name, single.get(name)) in tars}
            of_tars = {MANIFEST} & single.keys() if any(map(TAR_OF_NEMO.fullmatch, names)) else set[str]()
            undecided = [
                name for name, each in single.items() if each.instead is not None and name not in described | of_tars
            ]
            self.undecided += [_shard(directory, name, single.pop(name)) for name in undecided]
            stems = {name.removesuffix(INDEX_SUFFIX) for name in prefixes}
            known = {*prefixes, *undecided, *of_tars, *(LISTS if SEGMENTS in names else ())}
            if RECORDINGS in names:
                path = os.path.join(directory, RECORDINGS)
                self.kaldi[path] = self._kaldi_list(path)
                self.left_out.add(path, f"{_A_KALDI_DIRECTORY}: {self.kaldi[path].advice}")
                known |= {RECORDINGS, *OTHER_LISTS}
            for name in names:
                if name in described:
                    self.left_out.add(os.path.join(directory, name), _DESCRIBES)
                elif name in single and name not in of_tars:
                    found[name] = single[name]
                elif not (name in known or _is_beside(name, single) or data_stem(name) in stems):
                    self.loose = self.loose or (name if is_loose(name) else "")
                    self.left_out.add(os.path.join(directory, name), describe_name(name) or _NO_SHARD)
        return [_shard(directory, name, found[name]) for name in sorted(found)]

    def _leave_out_others(self, directory: str, entries: Iterable[StoredEntry], own: OwnList) -> None:
        known = {name.partition("/")[0] for name in (*own.files, *own.directories)}
        names = sorted(entry.name for entry in entries if entry.name not in known and entry.name[0] != ".")
        data = (name for name in names if single_named(name) not in (None, AUDIO_LIST))
        for name in (*data, *own.others):
            self.left_out.add(os.path.join(directory, name), own.reason)

    def _kaldi_list(self, path: str) -> AudioList:
        from touchfs.registry.directory.audio_lists import AudioList, read_audio_list  # only lists need it

        empty = AudioList(path, [], "its wav.scp is empty")
        with suppress(NotFoundError, SourceError):
            return read_audio_list(path) or empty
        return empty._replace(problem="its wav.scp cannot be read")

    def _directory_shard(self, path: str, entries: Sequence[StoredEntry]) -> FoundShard | None:
        if (container := directory_kind(path, entries)) is not None:
            return FoundShard(Location.of(path), container)
        if self.audio_root is not None and _has_recordings(entries):
            return _shard(path, RECORDINGS, KALDI)
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
        named = container_named(path) or DIRECTORY if path in self.silent else container_at(path, self.store)
        return FoundShard(Location.of(path), named)


def _shard(directory: str, name: str, container: Container) -> FoundShard:
    return FoundShard(Location.of(os.path.join(directory, name)), container)


def _has_recordings(entries: Sequence[StoredEntry]) -> bool:
    return any(each.name == RECORDINGS and each.is_file() for each in entries)


def directory_kind(path: str, entries: Sequence[StoredEntry]) -> Container | None:
    """Which kind of shard the directory at a path is as a whole; None if it is not a shard."""
    from touchfs.containers.touchnet.reader import is_touchnet_shard  # a dataset of one file needs none of it

    if is_touchnet_shard(entries):
        return DIRECTORY
    return LANCE if is_lance_dataset(path, entries) else None


def _repeats(path: str, names: Collection[str]) -> bool:
    """True for a directory whose files repeat the manifest that is with it in `names`: a part for each tar."""
    return MANIFEST in names and os.path.basename(path) == _MANIFESTS


def _subdirectories(directory: str, entries: Iterable[StoredEntry]) -> list[str]:
    """The paths of the directories in one with these entries, sorted, but hidden ones."""
    return sorted(os.path.join(directory, each.name) for each in entries if each.name[0] != "." and each.is_dir())


def _single(path: str, store: Store) -> Container | None:
    """The container of a file that is a shard by itself or with the files beside it; else None."""
    container = container_at(path, store)
    return container if container.is_single or container is SHAR else None


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
        raise FormatError(f"is {what}; {READS}", path=path)
    first = next(filter(None, map(bytes.strip, head.split(b"\n"))), b"")
    from touchfs.containers.touchnet.reader import MODALITIES  # only lists need it

    match = LINE.fullmatch(first)
    if match is None or MODALITIES.isdisjoint(match[2].decode().split("+")):
        raise FormatError(f"is not a dataset: line 1 is not `SHARD_DIR DATATYPES`; {READS}", path=path)
