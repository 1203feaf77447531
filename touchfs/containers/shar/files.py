"""Decide by name which files of a directory form the shards of a Lhotse Shar: `FIELD[.NUMBER].jsonl` or `.tar`.

Files with the same number belong together, whatever text the number is; those of the field `cuts` are the shards. So a
field may be absent from some shards. (Lhotse instead pairs the n-th files of all fields, whatever their names.) Every
other file of the directory is shown or reported; the first shard reports files that belong to no shard. Only hidden
files, indexes, and lists of samples that were skipped when the shards were written are neither.

Names without a number say less, because Lhotse's ordinary manifests are called `cuts.jsonl`, `recordings.jsonl` and
`supervisions.jsonl`. Beside such cuts a tar is a field, and a JSONL file is a field only if its first line has a
`cut_id`. Any other JSONL file there is a shard of its own; so is `cuts.jsonl` if it has no field.
"""

from __future__ import annotations

import os
import re
from collections.abc import Generator, Iterable
from contextlib import closing, suppress
from functools import lru_cache
from time import time_ns
from typing import NamedTuple

from touchfs.core.errors import NotFoundError, TouchfsError, map_os_errors
from touchfs.source.data import DATA
from touchfs.source.decompressed import STEP_SIZE, codec_of, decompress
from touchfs.source.fingerprint import Fingerprint
from touchfs.source.store import Store

CUTS = "cuts"
_INDEX_SUFFIXES = (".idx", ".idxpack")
_SKIPPED_NAME = "skipped.jsonl"  # written by our own writers with --skip-bad
_NAME = re.compile(r"([^.]+)(\..+)??\.(jsonl|tar)(\.(?:gz|bz2|xz|zst))?", re.DOTALL)
# A directory that changed more recently than this may change again without a new mtime.
_SETTLED_NS = 2 * 10**9
_LISTINGS_KEPT = 64
# Only this many bytes of a longer line are examined; Lhotse puts the id at the beginning.
_LINE_MAX = 1 << 20
_CUT_ID = re.compile(rb'\s*\{\s*"cut_id"\s*:')


class Name(NamedTuple):
    """The parts of a file name. All but `field` and `suffix` may be empty."""

    field: str
    number: str  # with the dot before it
    suffix: str
    compression: str


class Listing(NamedTuple):
    """The files of a directory: `shards` by number, `lines` that are shards of their own, and `strays`, all others."""

    shards: dict[str | None, list[str]]
    lines: list[str]
    strays: list[str]

    @property
    def cuts(self) -> list[str]:
        """The cuts files of all shards. A compressed one is left out if the plain one exists."""
        names = [name for shard in self.shards.values() for name in shard if is_cuts(name)]
        return [name for name in names if plain_name(name) == name or plain_name(name) not in names]


def is_shard(path: str, store: Store = DATA) -> bool:
    """True if a path is the cuts file of a Shar. For a name without a number, its directory is listed."""
    directory, name = os.path.split(path)
    if not is_cuts(name):
        return False
    number = shar_number(name)
    if number:
        return True
    try:
        return number in _listing(directory or ".", store).shards
    except TouchfsError:
        return False


def list_files(directory: str, names: Iterable[str]) -> Listing:
    """Sort the files of a directory with these names into shards, JSONL shards and strays."""
    names = sorted(names)
    shards: dict[str | None, list[str]] = {shar_number(name): [] for name in names if is_cuts(name)}
    lines: list[str] = []
    strays: list[str] = []
    if "" in shards:
        fields = {name for name in names if _is_plain_field(directory, name)}
        if not fields:
            del shards[""]
        lines = [name for name in names if _is_plain_lines(name) and not (name in fields or (fields and is_cuts(name)))]
    for name in names:
        if name not in lines:
            shards.get(shar_number(name), strays).append(name)
    return Listing(shards, lines, strays)


def fingerprints(path: str, store: Store = DATA) -> dict[str, Fingerprint]:
    """Fingerprints, by name, of the files that a shard shows or reports. Raises NotFoundError or SourceError."""
    directory, name = os.path.split(path)
    files = {}
    for each in _files(directory or ".", name, store):
        with suppress(NotFoundError):  # removed since it was listed
            files[each] = store.stat(os.path.join(directory, each)).fingerprint
    if name not in files:
        raise NotFoundError("no such shard", path=path)
    return files


def field_names(directory: str) -> set[str]:
    """The names of the fields of all shards of a directory, `cuts` included."""
    names = (name for shard in _list(directory, DATA).shards.values() for name in shard)
    return {parsed.field for name in names if (parsed := parse_name(name))}


def parse_name(name: str) -> Name | None:
    """Split the name of a file; None if it is not one of a Shar."""
    match = _NAME.fullmatch(name)
    return None if match is None else Name(match[1], match[2] or "", match[3], match[4] or "")


def shar_number(name: str) -> str | None:
    """The number in a name, with its dot; "" if there is none, and None if it is not a name of a Shar."""
    parsed = parse_name(name)
    return None if parsed is None else parsed.number


def plain_name(name: str) -> str:
    """The name of a compressed file without its compression."""
    parsed = parse_name(name)
    return name.removesuffix(parsed.compression) if parsed else name


def is_cuts(name: str) -> bool:
    """True if a file of this name holds cuts."""
    parsed = parse_name(name)
    return parsed is not None and (parsed.field, parsed.suffix) == (CUTS, "jsonl")


def _is_plain_lines(name: str) -> bool:
    parsed = parse_name(name)
    return parsed is not None and (parsed.number, parsed.suffix) == ("", "jsonl")


def _is_plain_field(directory: str, name: str) -> bool:
    """True if a file without a number is a field of the cuts without one."""
    parsed = parse_name(name)
    if parsed is None or parsed.number or parsed.field == CUTS:
        return False
    return parsed.suffix == "tar" or _has_cut_id(os.path.join(directory, name))


def _has_cut_id(path: str) -> bool:
    """True if the first line of a JSONL file has a `cut_id`. False for a file that cannot be read."""
    try:
        with closing(_blocks(path)) as blocks:
            line = _first_line(blocks)
    except TouchfsError:
        return False
    if len(line) >= _LINE_MAX:
        return _CUT_ID.match(line) is not None
    from touchfs.containers.lines.reader import (
        parse_line,  # with a reader, which a directory without such cuts may not need
    )

    return "cut_id" in parse_line(line, 0)[0]


def _first_line(blocks: Iterable[bytes]) -> bytes:
    line, seen = b"", 0
    for block in blocks:
        line = (line + block).lstrip()
        seen += len(block)
        if (end := line.find(b"\n")) >= 0:
            return line[:end]
        if seen >= _LINE_MAX:
            break
    return line[:_LINE_MAX]


def _blocks(path: str) -> Generator[bytes, None, None]:
    is_plain = plain_name(os.path.basename(path)) == os.path.basename(path)
    with map_os_errors(path), DATA.stream(path) as file:
        steps = iter(lambda: file.read(STEP_SIZE), b"")
        yield from steps if is_plain else decompress(codec_of(path), steps)


def _files(directory: str, name: str, store: Store) -> list[str]:
    """The names of the files of the shard whose cuts file has this name."""
    listing, number = _listing(directory, store), shar_number(name)
    is_first = number == next(iter(listing.shards), None)
    return [*listing.shards.get(number, ()), *(listing.strays if is_first else ())]


def _listing(directory: str, store: Store) -> Listing:
    mtime_ns = store.stat(directory).fingerprint.mtime_ns
    return _known(directory, mtime_ns) if time_ns() - mtime_ns > _SETTLED_NS else _list(directory, store)


@lru_cache(_LISTINGS_KEPT)
def _known(directory: str, mtime_ns: int) -> Listing:
    """Cached, because each of a thousand shards in a directory needs the same listing."""
    return _list(directory, DATA)


def _list(directory: str, store: Store) -> Listing:
    names = [
        entry.name
        for entry in store.list(directory)
        if entry.name[0] != "."
        and entry.name != _SKIPPED_NAME
        and not entry.name.endswith(_INDEX_SUFFIXES)
        and entry.is_file()
    ]
    return list_files(directory, names)
