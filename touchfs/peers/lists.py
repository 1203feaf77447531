"""Indexes of many shards in one file: whether each shard still matches them.

    .idxpack            Lhotse's: the offsets of many JSONL files and tars, with a CRC for each shard
    index.sqlite        Energon's, in `.nv-meta`: key and range of each sample, and the range of each file in it
    wids JSON           a list of tars with their sizes and numbers of samples (and MD5, which is not checked, because
                        that would read all data)

A shard is looked for at the listed path, relative to a `directory`, then beside the list. A shard with a URL is not
checked.

Source: lhotse/index_pack.py, Megatron-Energon's prepare.py and aggregator_pool.py, wids/wids_specs.py.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pkgutil import resolve_name
from tempfile import NamedTemporaryFile
from typing import Any
from urllib.parse import quote

from touchfs.containers.tar.adopted.energon import INFO_NAME, tar_names
from touchfs.containers.tar.layout import members as tar
from touchfs.containers.tar.layout.grouping import Dialect, grouping, webdataset_key
from touchfs.core.errors import FormatError
from touchfs.core.location import Location
from touchfs.core.urls import climbs
from touchfs.peers.judge import IndexState, Verdict, counted
from touchfs.source.data import DATA, find_type
from touchfs.source.store import FileType, StoredFile

_SQLITE_MAGIC = b"SQLite format 3\0"
# Kinds of lists that have a folder of their own: their first bytes, and what judges them as `judge_list`.
_JUDGES = {b"IDXPACK": "touchfs.idxpack.judge:judge_pack"}
_WIDS_KIND = "wids-shard-index-v1"
_JSON_SIZE_MAX = 2**28
_COPY_SIZE_MAX, _COPY_BLOCK = 2**30, 2**20
_URL = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*:(?://)?")
_Place = tuple[str, int, int]  # a sample or a file in it: key or name, offset, size


def is_list(path: str) -> bool:
    """True if a file is an index of many shards, by its first bytes."""
    file = DATA.open(path)
    head = file.read(0, min(file.size, 4096))
    if head.startswith((*_JUDGES, _SQLITE_MAGIC)):
        return True
    return head.lstrip().startswith(b"{") and path.endswith(".json") and b'"__kind__"' in head


def judge_list(path: str, directory: str = "") -> Iterator[Verdict]:
    """A verdict on each shard of an index of many, whose names are relative to the `directory`, by default the current
    one. Raises FormatError if the index as a whole is damaged.
    """
    file = DATA.open(path)
    head = file.read(0, min(file.size, len(_SQLITE_MAGIC)))
    own = next((judge for magic, judge in _JUDGES.items() if head.startswith(magic)), None)
    try:
        if head.startswith(_SQLITE_MAGIC):
            yield from _judge_sqlite(path)
        elif own is not None:
            yield from resolve_name(own)(path, directory)
        else:
            yield from _judge_wids(path, directory)
    except FormatError as error:
        error.at(path)
        raise


def _judge_wids(path: str, directory: str) -> Iterator[Verdict]:
    file = DATA.open(path)
    if file.size > _JSON_SIZE_MAX:
        raise FormatError(f"{file.size} bytes are too many for a list of shards")
    try:
        spec = json.loads(file.read(0, file.size))
        if spec["__kind__"] != _WIDS_KIND:
            raise FormatError(f"a list of the kind {spec['__kind__']!r}, only {_WIDS_KIND!r} is known")
        lists = [spec.get("shardlist", []), *(part.get("shardlist", []) for part in spec.get("datasets", []))]
        shards = [_wids_shard(shard, str(spec.get("base") or "")) for listed in lists for shard in listed]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise FormatError(f"not a list of shards by wids: {error}") from error
    for name, samples, size in shards:
        shard = open_listed(path, name, size, directory)
        if isinstance(shard, Verdict):
            yield shard
            continue
        # wids treats leading dots in its own way, so either count is accepted.
        counts = [_count(shard, dialect) for dialect in (Dialect.WIDS, Dialect.ENERGON)]
        if samples in counts:
            yield Verdict(path, IndexState.FITS, f"{name}: {counted(samples)}", samples)
        else:
            yield Verdict(path, IndexState.STALE, f"{name}: {counted(samples)} in it, and in the tar {counts[0]}")


def _wids_shard(entry: dict[str, Any], base: str) -> tuple[str, int, int | None]:
    name, samples, size = entry["url"], entry["nsamples"], entry.get("filesize")
    if not isinstance(name, str) or type(samples) is not int or not (size is None or type(size) is int):
        raise TypeError(f"a shard of {entry}"[:100])
    return base + name, samples, size


def _count(shard: StoredFile, dialect: Dialect) -> int:
    group = grouping(dialect)
    return sum(
        group.begins(member.name, member.header_offset, member.kind is tar.MemberType.FILE)
        for member in tar.members(shard.read, shard.size)
    )


def _judge_sqlite(path: str) -> Iterator[Verdict]:
    import sqlite3  # imported here only, as its import takes as long as numpy's

    names = tar_names(os.path.join(os.path.dirname(path), INFO_NAME))
    root = os.path.dirname(os.path.dirname(Location.of(path).absolute.path))
    try:
        # Immutable: SQLite needs no locks and no journal, as the directory may be read-only.
        with (
            _local_copy(path) as place,
            closing(sqlite3.connect(f"file:{quote(place)}?mode=ro&immutable=1", uri=True)) as store,
        ):
            (last,) = store.execute("SELECT max(tar_file_id) FROM samples").fetchone()
            if last is not None and not (type(last) is int and last < len(names)):
                raise FormatError(f"has samples of a shard {last!r}, which is not in {INFO_NAME}")
            for number, name in enumerate(names):
                shard = open_listed(path, name, None, root=root)
                yield shard if isinstance(shard, Verdict) else _judge_tables(path, name, shard, store, number)
    except sqlite3.Error as error:
        raise FormatError(f"not Energon's tables: {error}") from error


@contextmanager
def _local_copy(path: str) -> Iterator[str]:
    """The path of a file of this machine; of one of another store, that of a copy until the block ends."""
    if not Location.of(path).is_url:
        yield os.path.abspath(path)
        return
    with closing(DATA.open(path)) as file, NamedTemporaryFile(prefix="touchfs-") as copy:
        if file.size > _COPY_SIZE_MAX:
            raise FormatError(f"{file.size:,} bytes are too many to be copied here: check it where it is a local file")
        for offset in range(0, file.size, _COPY_BLOCK):
            copy.write(file.read(offset, min(_COPY_BLOCK, file.size - offset)))
        copy.flush()
        yield copy.name


def _judge_tables(path: str, name: str, shard: StoredFile, store: Any, number: int) -> Verdict:
    samples = store.execute(
        "SELECT sample_index, sample_key, byte_offset, byte_size FROM samples WHERE tar_file_id = ? "
        "ORDER BY sample_index",
        (number,),
    )
    files = store.execute(
        "SELECT sample_index, part_name, content_byte_offset, content_byte_size FROM sample_parts "
        "WHERE tar_file_id = ? ORDER BY sample_index, content_byte_offset",
        (number,),
    )
    count = 0
    try:
        for count, (key, offset, ends, parts) in enumerate(_energon_samples(shard), 1):
            row = next(samples, None)
            if row is None or row[:3] != (count - 1, key, offset) or row[2] + row[3] not in ends:
                problem = (
                    f"sample {count - 1} is {row and row[1:]} in it, and in the tar {(key, offset, ends[0] - offset)}"
                )
                return Verdict(path, IndexState.STALE, f"{name}: {problem}")
            for part in parts:
                if (row := next(files, None)) != (count - 1, *part):
                    problem = f"file {row and row[1:]} in it, and in the tar {part}"
                    return Verdict(path, IndexState.STALE, f"{name}: sample {count - 1} has the {problem}")
    except (FormatError, TypeError) as error:
        return Verdict(path, IndexState.STALE, f"{name}: {error}")
    if next(samples, None) is not None or next(files, None) is not None:
        return Verdict(path, IndexState.STALE, f"{name}: it has more than the {counted(count)} of the tar")
    return Verdict(path, IndexState.FITS, f"{name}: {counted(count)}", count)


def _energon_samples(shard: StoredFile) -> Iterator[tuple[str, int, tuple[int, int], list[_Place]]]:
    """Samples of a tar: key, offset, the ends of the last file and of the members ignored after it, and the files."""
    key, offset, end, parts = "", 0, 0, list[_Place]()
    last = 0
    for member in tar.members(shard.read, shard.size):
        found = webdataset_key(member.name) if member.kind is tar.MemberType.FILE else ""
        if found and found != key:
            if key:
                yield key, offset, (end, member.header_offset), parts
            key, offset, parts = found, member.header_offset, []
        if found:
            parts.append((member.name[len(found) + 1 :], member.offset, member.size))
            end = member.end
        last = member.end
    if key:
        yield key, offset, (end, last), parts


def open_listed(
    path: str, name: str, size: int | None, directory: str = "", root: str | None = None
) -> StoredFile | Verdict:
    """Open a shard of the list at `path`; a verdict if it is missing or has another size than `size`. Its name is
    relative to the `root`, by default to the `directory` or that of the list.
    """
    if _URL.match(name):
        return Verdict(path, IndexState.UNCHECKED, f"{name}: is not on this machine")
    location = Location.of(path)
    beside = root or os.path.dirname(location.absolute.path)
    if location.is_url and (
        os.path.isabs(name) or climbs(name)
    ):  # it names no file of this machine, nothing above itself
        return Verdict(path, IndexState.UNCHECKED, f"{name}: is not below the list")
    places = [os.path.join(beside, name), os.path.join(beside, os.path.basename(name))]
    if root is None and not location.is_url:
        places.insert(0, os.path.join(directory, name))
    place = next((place for place in places if find_type(place) is FileType.FILE), None)
    if place is None:
        return Verdict(path, IndexState.STALE, f"{name}: is not there")
    shard = DATA.open(place)
    if size is not None and shard.size != size:
        return Verdict(path, IndexState.STALE, f"{name}: has {shard.size} bytes, and {size} when it was indexed")
    return shard
