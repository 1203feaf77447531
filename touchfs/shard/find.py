"""Find the shards of a dataset.

    a directory     with a modality of TouchNet's (`audio.idx`, `metainfo.bin`, …): that one shard
                    with `_versions`, or named `*.lance`, a Lance dataset: that one shard
                    with a `data.list`: the shards it lists
                    with `cuts.000000.jsonl`, …, a Lhotse Shar: each of these; the other files are their fields
                    (`cuts.jsonl` too, if it has fields: `touchfs.shard.shar.files`)
                    with the `_metadata.json` of a cache of Arrow shards: each shard that it lists
                    with files that are shards: each of them, in name order (a tar; a JSONL file; a pair `PREFIX.idx`
                    and `.bin` with any other name is a shard of Megatron-LM)
                    and the shards of its subdirectories, one level down, or those that a list or metadata there name
                    with `wav.scp`, a data directory of Kaldi's, if there is an audio root: this one shard
    PREFIX.idx      or `PREFIX.bin` or `PREFIX`, if no other file has that name: the one shard
    a .tar, .jsonl  the one shard, also if it is compressed (.tar.gz, .jsonl.zst, …)
    a .arrow        the one shard, as a .feather or a .parquet
    a name with braces, as `train-{000..099}.tar`, that no file has: the shards of all its members, also missing ones
    another file    a `data.list`, if it looks like one; else an error says what it is (`touchfs.shard.other_formats`)

Names alone decide (except for JSON lines beside a `cuts.jsonl`), so hundreds of shards are found without a read.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from itertools import islice

from touchfs.errors import FormatError, NotFoundError, SourceError, UsageError
from touchfs.format.braces import BracePattern
from touchfs.format.cache_metadata import METADATA_FILE
from touchfs.format.idx import DATA_SUFFIX, INDEX_SUFFIX
from touchfs.format.parquet import PARQUET_SUFFIX
from touchfs.posix.paths import check_url, is_url, joinable, shown
from touchfs.shard.lists.data_list import LINE, listed_places
from touchfs.shard.lists.members import find_members, list_directories, shared_directories
from touchfs.shard.other_formats import READS, describe, describe_name, read_head
from touchfs.shard.shar.files import is_shard, list_files
from touchfs.shard.single import RECORDINGS
from touchfs.shard.tables.files import ARROW_SUFFIXES, listed_shards
from touchfs.shard.tables.lance_files import is_lance_dataset
from touchfs.source.data import DATA, find_type
from touchfs.source.decompressed import JSONL_SUFFIXES, TAR_SUFFIXES
from touchfs.source.store import FileType, Store, StoredEntry

LIST_NAME, LIST_SUFFIX = "data.list", ".list"
# Written beside the shards by our own writers with --skip-bad: the samples they left out.
SKIPPED_NAME = "skipped.jsonl"
# The error for a directory without shards names one file each of at most this many formats.
_KINDS_NAMED = 3

FILE_SUFFIXES = (".tar", ".jsonl", *ARROW_SUFFIXES, PARQUET_SUFFIX, *TAR_SUFFIXES, *JSONL_SUFFIXES)


def candidates(source: str, store: Store = DATA, *, locations: Sequence[str] = ()) -> list[str]:
    """The paths that `find_shards` looks at in a directory, or because a list names them; first the directories that it
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
    else:
        return []
    found = [place for places in listed_places(listing, locations, lambda places: False) for place in places]
    return [*shared_directories(found), *found]


def find_shards(
    source: str,
    silent: Collection[str] = (),
    store: Store = DATA,
    *,
    audio_root: str | None = None,
    locations: Sequence[str] = (),
) -> list[str]:
    """The paths of the shards of a source, in dataset order, also listed ones that are missing.

    The `candidates` that are `silent` are returned as shards without being accessed. With an `audio_root`,
    directories of Kaldi's are shards. A list may name URLs below one of the `locations`.

    Raises UsageError for a URL with a user and for too many names, LocationError for a list that names another URL,
    FormatError for a file that is not a dataset, NotFoundError and SourceError.
    """
    check_url(source)
    source = joinable(source)
    if (pattern := find_members(source, store)) is not None:
        return _of_members(pattern, source, silent, store, audio_root, locations)
    try:
        kind = store.stat(source).type
    except NotFoundError:
        kind = None
    if kind is FileType.FILE and audio_root is not None and os.path.basename(source) == RECORDINGS:
        return [source]
    if kind is not FileType.DIRECTORY:
        return _of_file(source, kind, silent, store, locations)
    entries = store.list(source)
    if (shard := _directory_shard(source, entries, audio_root)) is not None:
        return [shard]
    if (named := _named_shards(source, entries, silent, store, locations)) is not None:
        return named
    paths = {os.path.join(source, entry.name): entry for entry in entries}
    shards = _in_directory(source, [entry for path, entry in paths.items() if path not in silent])
    for path in sorted(paths):
        if path in silent:
            shards.append(path)
        elif not paths[path].name.startswith(".") and paths[path].is_dir():
            shards += _below(path, silent, store, audio_root, locations)
    if not shards:
        expected = (
            "expected .bin/.idx, .tar, .jsonl, .arrow or .parquet files, Lance datasets, directories of them, "
            "or a data.list"
        )
        kinds = {what: name for name in reversed(_names(entries)) if (what := describe_name(name))}
        others = "".join(f"; {name} is {what}" for what, name in islice(reversed(kinds.items()), _KINDS_NAMED))
        raise NotFoundError(f"no shards here: {expected}{others}", path=shown(source))
    return shards


def _of_file(
    source: str, kind: FileType | None, silent: Collection[str], store: Store, locations: Sequence[str]
) -> list[str]:
    """The shards of a source that is not a directory."""
    if kind is FileType.FILE and _is_one_shard(source, store):
        read_head(source)
        return [source]
    if (index := _index_of(source, store)) is not None:
        return [index]
    if kind is FileType.FILE:
        _check_list(source)
        return _listed(source, silent, store, locations)
    if kind is FileType.OTHER:
        raise NotFoundError("neither a file nor a directory", path=shown(source))
    raise NotFoundError("no such file or directory", path=shown(source))


def _of_members(
    pattern: BracePattern,
    source: str,
    silent: Collection[str],
    store: Store,
    audio_root: str | None,
    locations: Sequence[str],
) -> list[str]:
    """The shards of all members of a pattern. A member that is missing is a shard that is missing, unless all are."""
    list_directories(pattern, store, silent)
    shards, missing = list[str](), 0
    for name in pattern:
        if not is_url(source) and (is_url(name) or "//" in name[max(0, len(pattern.prefix) - 1) :]):
            message = "the braces hold whole paths: write these into a data.list, one a line"
            raise UsageError(message, path=shown(source))
        kind = None if name in silent else find_type(name, store)
        if name in silent or (kind is FileType.FILE and _is_one_shard(name, store)):
            shards.append(name)
        elif kind is not None or _index_of(name, store) is not None:
            shards += find_shards(name, silent, store, audio_root=audio_root, locations=locations)
        else:
            shards.append(name)
            missing += 1
    if missing == pattern.count:
        first = next(iter(pattern))
        with suppress(NotFoundError):
            store.stat(first)  # raises SourceError if all we know is that we may not look
        raise NotFoundError(f"none of its {missing:,} members exists, the first is {shown(first)}", path=shown(source))
    return shards


def _is_one_shard(path: str, store: Store) -> bool:
    return path.endswith(FILE_SUFFIXES) or is_shard(path, store)


def _names(entries: Iterable[StoredEntry]) -> list[str]:
    """Names in a directory, sorted, without hidden files: they are still being written."""
    return sorted(entry.name for entry in entries if not entry.name.startswith("."))


def _directory_shard(path: str, entries: Sequence[StoredEntry], audio_root: str | None) -> str | None:
    """The path of the one shard that a directory is, or None."""
    from touchfs.shard.touchnet import is_touchnet_shard  # a dataset of one file needs none of what knows directories

    if is_touchnet_shard(entries) or is_lance_dataset(path, entries):
        return path
    if audio_root is not None and any(each.name == RECORDINGS and each.is_file() for each in entries):
        return os.path.join(path, RECORDINGS)
    return None


def _below(
    path: str, silent: Collection[str], store: Store, audio_root: str | None, locations: Sequence[str]
) -> list[str]:
    """The shards in a subdirectory, or that one shard; none if we may not look into it."""
    try:
        entries = store.list(path)
    except (NotFoundError, SourceError):
        return []
    if (shard := _directory_shard(path, entries, audio_root)) is not None:
        return [shard]
    named = _named_shards(path, entries, silent, store, locations)
    return _in_directory(path, entries) if named is None else named


def _named_shards(
    path: str, entries: Iterable[StoredEntry], silent: Collection[str], store: Store, locations: Sequence[str]
) -> list[str] | None:
    """The shards that a file of a directory names: the metadata of a cache, or a list. None without such a file."""
    names = {entry.name for entry in entries}
    if METADATA_FILE in names and (cached := listed_shards(path)) is not None:
        return cached
    listing = os.path.join(path, LIST_NAME)
    if LIST_NAME in names and find_type(listing, store) is FileType.FILE:
        return _listed(listing, silent, store, locations)
    return None


def _in_directory(path: str, entries: Iterable[StoredEntry]) -> list[str]:
    """The files of a directory that are shards, of those in `entries`."""
    from touchfs.shard.megatron import find_prefixes  # as above

    # No hidden files: they are still being written, and `._x.idx` has the extended attributes of a Mac.
    names = [each.name for each in entries if each.name[0] != "." and each.name != SKIPPED_NAME and each.is_file()]
    shar = list_files(path, names)
    files = [*shar.cuts, *shar.lines] if shar.shards else [name for name in names if name.endswith(FILE_SUFFIXES)]
    return sorted([*find_prefixes(path, names), *(os.path.join(path, name) for name in files)])


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


def _listed(listing: str, silent: Collection[str], store: Store, locations: Sequence[str]) -> list[str]:
    def is_there(places: Sequence[str]) -> bool:
        return any(place not in silent and find_type(place, store) is not None for place in places)

    found = list(listed_places(listing, locations, is_there))
    list_directories((place for places in found for place in places), store, silent)
    return [_locate(places, silent, store) for places in found]


def _locate(places: Sequence[str], silent: Collection[str], store: Store) -> str:
    """The first of the places where a shard may be; if nothing is at any of them, the one where it should be."""
    for place in places:
        if place in silent or find_type(place, store) in (FileType.DIRECTORY, FileType.FILE):
            return place
        if not place.endswith(FILE_SUFFIXES) and (index := _index_of(place, store)) is not None:
            return index
    return places[min(1, len(places) - 1)]
