"""Find the shards of a dataset.

    a directory     with a modality of TouchNet's (`audio.idx`, `metainfo.bin`, …): that one shard
                    with a `data.list`: the shards it lists
                    with `cuts.000000.jsonl`, …, a Lhotse Shar: each of these; the other files are their fields
                    (`cuts.jsonl` too, if it has fields: `touchfs.shard.shar.files`)
                    with files that are shards: each of them, in name order (a tar; a JSONL file; a pair `PREFIX.idx`
                    and `.bin` with any other name is a shard of Megatron-LM)
                    and the shards of its subdirectories, one level down
    PREFIX.idx      or `PREFIX.bin` or `PREFIX`, if no other file has that name: the one shard
    a .tar, .jsonl  the one shard, also if it is compressed (.tar.gz, .jsonl.zst, …)
    another file    a `data.list`, if it looks like one; else an error says what it is (`touchfs.shard.other_formats`)

Names alone decide (except for JSON lines beside a `cuts.jsonl`), so hundreds of shards are found without a read.

A `data.list` has one line `SHARD_DIR DATATYPES` per shard. Its paths are as the user typed them when the shards were
made, relative to the directory of that day. So each path is tried as written, then relative to the list, then by its
last component beside the list. The last word of a line is the datatypes and everything before it is the path, so paths
may contain spaces.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from itertools import islice

from touchfs.errors import FormatError, NotFoundError, SourceError
from touchfs.posix.links import check_links, open_data
from touchfs.shard.compressed import JSONL_SUFFIXES, TAR_SUFFIXES
from touchfs.shard.megatron import find_prefixes
from touchfs.shard.other_formats import READS, describe, describe_name, exists, read_head, refuse_remote
from touchfs.shard.pair import DATA_SUFFIX, INDEX_SUFFIX
from touchfs.shard.shar.files import is_shard, list_files
from touchfs.shard.touchnet import MODALITIES, is_touchnet_shard

LIST_NAME, LIST_SUFFIX = "data.list", ".list"
# Written beside the shards by our own writers with --skip-bad: the samples they left out.
SKIPPED_NAME = "skipped.jsonl"
# A path has at most 4096 bytes, and datatypes follow. A file with longer lines is not a list.
LINE_MAX = 8192
# The error for a directory without shards names one file each of at most this many formats.
_KINDS_NAMED = 3

FILE_SUFFIXES = (".tar", ".jsonl", *TAR_SUFFIXES, *JSONL_SUFFIXES)

_LINE = re.compile(rb"([^\0]*\S)\s+(\w+(?:\+\w+)*)", re.ASCII)


def candidates(source: str) -> list[str]:
    """The paths that `find_shards` looks at in a directory, or because a list names them."""
    if os.path.isdir(source):
        listing = os.path.join(source, LIST_NAME)
        if not os.path.isfile(listing):
            return [os.path.join(source, name) for name in _names(source)]
    elif os.path.isfile(source) and not _is_one_shard(source) and _index_of(source) is None:
        listing = source
        _check_list(source)
    else:
        return []
    return [place for path in _lines(listing) for place in _places(path, listing)]


def find_shards(source: str, silent: Collection[str] = ()) -> list[str]:
    """The paths of the shards of a source, in dataset order, also listed ones that are missing.

    Those of the `candidates` that are `silent` are returned as shards without being accessed.

    Raises UsageError for a remote source, FormatError for a file that is not a dataset, NotFoundError and SourceError.
    """
    refuse_remote(source)
    exists(source)
    if not os.path.isdir(source):
        if _is_one_shard(source) and os.path.isfile(source):
            read_head(source)
            return [source]
        if (index := _index_of(source)) is not None:
            return [index]
        if os.path.isfile(source):
            _check_list(source)
            return _listed(source, silent)
        if os.path.lexists(source):
            raise NotFoundError("neither a file nor a directory", path=source)
        raise NotFoundError("no such file or directory", path=source)
    if is_touchnet_shard(source):
        return [source]
    listing = os.path.join(source, LIST_NAME)
    if os.path.isfile(listing):
        return _listed(listing, silent)
    shards = _in_directory(source, {os.path.basename(path) for path in silent})
    names = _names(source)
    for path in (os.path.join(source, name) for name in names):
        shards += [path] if path in silent or is_touchnet_shard(path) else _in_directory(path)
    if not shards:
        expected = "expected .bin/.idx, .tar or .jsonl files, directories of them, or a data.list"
        kinds = {what: name for name in reversed(names) if (what := describe_name(name))}
        others = "".join(f"; {name} is {what}" for what, name in islice(reversed(kinds.items()), _KINDS_NAMED))
        raise NotFoundError(f"no shards here: {expected}{others}", path=source)
    return shards


def _is_one_shard(path: str) -> bool:
    return path.endswith(FILE_SUFFIXES) or is_shard(path)


def _names(directory: str) -> list[str]:
    """Names in a directory, sorted, without hidden files: they are still being written."""
    try:
        return sorted(name for name in os.listdir(directory) if not name.startswith("."))
    except OSError as error:
        raise SourceError(error.strerror or str(error), path=directory) from error


def _in_directory(path: str, without: Collection[str] = ()) -> list[str]:
    """The files of a directory that are shards, except those named in `without`."""
    excluded = {SKIPPED_NAME, *without}
    try:
        check_links(path)
        with os.scandir(path) as entries:
            names = [e.name for e in entries if e.name[0] != "." and e.name not in excluded and e.is_file()]
    except OSError:
        return []  # no directory, or none that we may look into
    shar = list_files(path, names)
    names = [*shar.cuts, *shar.lines] if shar.shards else [name for name in names if name.endswith(FILE_SUFFIXES)]
    return sorted([*find_prefixes(path, without), *(os.path.join(path, name) for name in names)])


def _index_of(source: str) -> str | None:
    """The path of the `PREFIX.idx` that a source other than a directory refers to, or None."""
    if source.endswith(INDEX_SUFFIX) and os.path.isfile(source):
        return source
    if source.endswith(DATA_SUFFIX) or not os.path.exists(source):
        index = source.removesuffix(DATA_SUFFIX) + INDEX_SUFFIX
        return index if os.path.isfile(index) else None
    return None


def _check_list(path: str) -> None:
    """Raise FormatError, naming the file's format, unless the file is named or looks like a list of shards."""
    if path.endswith(LIST_SUFFIX):
        return
    head = read_head(path)
    if (what := describe(path, head)) is not None:
        raise FormatError(f"is {what}; {READS}", path=path)
    first = next(filter(None, map(bytes.strip, head.split(b"\n"))), b"")
    match = _LINE.fullmatch(first)
    if match is None or MODALITIES.isdisjoint(match[2].decode().split("+")):
        raise FormatError(f"is not a dataset: line 1 is not `SHARD_DIR DATATYPES`; {READS}", path=path)


def _listed(listing: str, silent: Collection[str]) -> list[str]:
    return [_locate(path, listing, silent) for path in _lines(listing)]


def _lines(listing: str) -> list[str]:
    """The paths in a list, as written."""
    shards = []
    try:
        with open(open_data(listing, os.O_RDONLY | os.O_CLOEXEC), "rb") as file:
            for number, line in enumerate(iter(lambda: file.readline(LINE_MAX), b""), 1):
                stripped = line.strip()
                if not stripped:
                    continue
                match = _LINE.fullmatch(stripped)
                if match is None:
                    raise FormatError(f"is not a dataset: line {number} is not `SHARD_DIR DATATYPES`", path=listing)
                shards.append(os.fsdecode(match[1]))
    except OSError as error:
        raise SourceError(error.strerror or str(error), path=listing) from error
    if not shards:
        raise FormatError("lists no shard", path=listing)
    return shards


def _places(path: str, listing: str) -> list[str]:
    """Paths where a listed shard may be, the likeliest first."""
    beside = os.path.dirname(os.path.abspath(listing))
    places = [path, os.path.join(beside, path), os.path.join(beside, os.path.basename(path.rstrip("/")))]
    if "/" not in path:  # a typed output directory would precede it, so a bare name is relative to the list
        places.reverse()
    return places


def _locate(path: str, listing: str, silent: Collection[str]) -> str:
    places = _places(path, listing)
    return next((place for place in places if place in silent or os.path.isdir(place)), places[1])
