"""The files that touchfs keeps on this machine beside the data: indexes, decompressed shards, states and logs.

Indexes, decompressed shards and rendered slices can be made again, so they may be removed to save space. A state holds
positions, which cannot, so it is removed only if its data are gone. Nor can lists of the shards that states are over,
which stay. A file that a mount uses is never removed.

Only files with names that touchfs gives are listed, in touchfs's own directories. Nothing outside is ever removed.

Data may be on a file system that does not answer. Then nobody knows whether they are gone, and they count as there.
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import chain
from typing import Any
from urllib.parse import quote

from touchfs.core.urls import shown
from touchfs.dataset import counted
from touchfs.indexing.dataset_file import DATASET_SUFFIX
from touchfs.indexing.place import index_directory
from touchfs.posix.mounts import Mount, mounts
from touchfs.registry.containers import is_compressed
from touchfs.registry.found_data import FoundData, find_data
from touchfs.registry.silent import answers_in_time
from touchfs.select.survivors import SUFFIX, survivors_directory
from touchfs.source.decompressed import scratch_name_of_resolved
from touchfs.source.fingerprint import Fingerprint, parse_files
from touchfs.source.scratch.space import is_used
from touchfs.source.scratch.store import Scratch
from touchfs.store.place import LOG_SUFFIX, STATE_SUFFIX, log_path, state_directory, state_path_of_resolved
from touchfs.store.shard_lists import lists_directory
from touchfs.verify.journal import journal_stem

INDEX, SCRATCH, VALUES, STATE, LOG, WHERE, SHARDS = "index", "scratch", "values", "state", "log", "where", "shards"
# An index file that no dataset file names is a leftover once it is older than this; before, it may be in the making.
_LEFT_OVER_SECONDS = 3600
_DATASET_FILE_MAX = 256 << 20
# How long a file system may take to say whether data are there.
_PATIENCE_SECONDS = 5.0
_OURS = re.compile(r"[0-9a-f]{32}\..+")


@dataclass(frozen=True, slots=True)
class StoredItem:
    """An index, decompressed shard, state or log, or all small values of the scratch store.

    `kind` is one of `INDEX`, `SCRATCH`, `VALUES`, `STATE`, `LOG`, `WHERE`, `SHARDS`. `about` is the dataset, shard or
    mount point that it belongs to, a text for values, or None if unknown. `size` is in bytes. `used` is the time of the
    last write or read, in seconds since 1970. `is_gone`: its data no longer exist. `is_used`: a mount or another
    process uses it. `is_silent`: the file system of its data does not answer, so they may be gone.
    """

    kind: str
    about: str | None
    files: tuple[str, ...]
    size: int
    used: float
    is_gone: bool
    is_used: bool
    is_silent: bool = False


# By path. Those that are missing do not answer.
_Found = Mapping[str, FoundData]


def list_storage(state_dir: str | None = None) -> list[StoredItem]:
    """All items, in the order of removal: first those whose data are gone, then the least recently used."""
    mounted = _mounts()
    sources = {mount.source for mount in mounted}
    datasets = list(_datasets(index_directory()))
    compressed = list(_compressed(datasets))
    about = {*sources, *(each.source for each in datasets), *(path for path, _ in compressed)}
    found = answers_in_time(about, _PATIENCE_SECONDS, find_data)
    items = [
        *_indexes(datasets, sources, found),
        *_scratch(compressed, found),
        *_values(),
        *_states(state_dir, datasets, sources, found),
        *_filter_results(state_dir),
        *_shard_lists(),
        *_logs(state_directory(state_dir), {log_path(mount.point, state_dir) for mount in mounted}),
    ]
    return sorted(items, key=lambda item: (not item.is_gone, item.used))


def items_to_prune(items: Iterable[StoredItem], keep: int | None = None) -> list[StoredItem]:
    """The items to remove: all whose data are gone, and then items that can be made again until at most `keep` bytes
    are left. Items in use stay.
    """
    items = list(items)
    left = sum(item.size for item in items)
    chosen = []
    for item in items:
        is_too_much = keep is not None and left > keep and item.kind not in (STATE, SHARDS)
        if not item.is_used and (item.is_gone or is_too_much):
            chosen.append(item)
            left -= item.size
    return chosen


def remove(item: StoredItem) -> None:
    """Remove the files of an item. A file that is missing already is no error. Raises OSError."""
    if item.kind in (SCRATCH, VALUES):
        Scratch.configured().remove(item.files)
        return
    for path in item.files:
        with suppress(FileNotFoundError):
            os.unlink(path)


@dataclass(frozen=True, slots=True)
class _Dataset:
    """A dataset file, and all files of the index of that dataset. Those of a shard have the name of its catalog."""

    source: str
    split: str | None
    shards: tuple[dict[str, Any], ...]
    files: tuple[str, ...]


def _datasets(directory: str) -> Iterator[_Dataset]:
    by_stem: dict[str, list[str]] = {}
    for path in _list_files(directory):
        by_stem.setdefault(_stem(path), []).append(path)
    for path in chain.from_iterable(by_stem.values()):
        if path.endswith(DATASET_SUFFIX) and os.path.getsize(path) <= _DATASET_FILE_MAX:
            with suppress(OSError, ValueError, TypeError, KeyError, RecursionError), open(path, "rb") as file:
                content = json.load(file)
                source = str(content["source"])
                shards = tuple(shard for shard in content["shards"] if isinstance(shard, dict))
                stems = [_stem(path), journal_stem(source), *(_stem(str(shard.get("catalog"))) for shard in shards)]
                files = chain.from_iterable(by_stem.get(stem, ()) for stem in dict.fromkeys(stems))
                yield _Dataset(source, content.get("split"), shards, tuple(files))


def _stem(path: str) -> str:
    return os.path.basename(path).partition(".")[0]


def _indexes(datasets: list[_Dataset], mounted: set[str], found: _Found) -> Iterator[StoredItem]:
    """Catalogs shared by several datasets count for one of them: a mounted one first, then one that still exists."""
    taken: set[str] = set()
    for dataset in sorted(datasets, key=lambda each: (each.source not in mounted, _are_gone([each.source], found))):
        source, files = dataset.source, [path for path in dataset.files if path not in taken and os.path.lexists(path)]
        taken.update(files)
        yield _item(INDEX, source, files, _are_gone([source], found), source in mounted, _is_silent([source], found))
    now = time.time()
    for path in _list_files(index_directory()):
        if path not in taken:
            item = _item(INDEX, None, [path], True, False)
            if now - item.used > _LEFT_OVER_SECONDS:
                yield item


def _scratch(compressed: list[tuple[str, Fingerprint]], found: _Found) -> Iterator[StoredItem]:
    """A file that no dataset file names may belong to data whose index is beside them or in memory. So its data do not
    count as gone; the scratch store itself evicts such files when it needs room.
    """
    store = Scratch.configured()
    about = {
        store.path(scratch_name_of_resolved(_resolved(path, found), fingerprint)): path
        for path, fingerprint in compressed
    }
    for path in store.stored():
        sources = [about[path]] if path in about else []
        yield _item(
            SCRATCH, about.get(path), [path], _are_gone(sources, found), is_used(path), _is_silent(sources, found)
        )


def _values() -> Iterator[StoredItem]:
    """Yield one item for all values, as there may be hundreds of thousands. The scratch store evicts single ones."""
    if files := Scratch.configured().values():
        about = f"{len(files):,} rendered slices, blocks of data at URLs and other small files"
        yield _item(VALUES, about, files, False, False)


def _compressed(datasets: list[_Dataset]) -> Iterator[tuple[str, Fingerprint]]:
    """The paths and fingerprints of the compressed files of all datasets."""
    for shard in (shard for dataset in datasets for shard in dataset.shards):
        with suppress(KeyError, TypeError, AttributeError):
            for name, fingerprint in parse_files(shard["files"]).items():
                path = os.path.join(os.path.dirname(str(shard["path"])), name)
                if is_compressed(path):
                    yield path, fingerprint


def _states(state_dir: str | None, datasets: list[_Dataset], mounted: set[str], found: _Found) -> Iterator[StoredItem]:
    """The name of a state store is a hash of its source. The source comes from an index of the same dataset, else from
    the paths of shards, which the stores of mounts hold.
    """

    def store(source: str, split: str | None = None) -> str:
        return state_path_of_resolved(_resolved(source, found), STATE_SUFFIX, state_dir, split)

    about = {store(each.source, each.split): [each.source] for each in datasets}
    used = {*map(store, mounted), *(path for path, (source,) in about.items() if source in mounted)}
    stores = [path for path in _list_files(state_directory(state_dir)) if path.endswith(STATE_SUFFIX)]
    shards = {path: _shards_of(path) for path in stores if path not in about}
    found = {**answers_in_time(chain(*shards.values()), _PATIENCE_SECONDS, find_data), **found}
    for path in stores:
        files = [each for each in (path, f"{path}-wal", f"{path}-shm") if os.path.lexists(each)]
        paths = about.get(path) or shards[path]
        # One path may be a URL, which `commonpath` would damage.
        source = paths[0] if len(paths) == 1 else os.path.commonpath(paths) if paths else None
        yield _item(STATE, source, files, _are_gone(paths, found), path in used, _is_silent(paths, found))


def _shards_of(store: str) -> list[str]:
    """The paths of the shards that have ids in a state store; empty if it cannot be read."""
    with suppress(sqlite3.Error, TypeError):
        with closing(sqlite3.connect(f"file:{quote(store)}?mode=ro", uri=True, timeout=1)) as connection:
            rows = connection.execute("SELECT DISTINCT path FROM shard").fetchall()
        return [os.fsdecode(path) for (path,) in rows if os.path.isabs(path)]
    return []


def _filter_results(state_dir: str | None) -> Iterator[StoredItem]:
    """Positions that filter expressions left. They can be computed again; which data they are about is a hash."""
    for directory in (survivors_directory(), survivors_directory(state_directory(state_dir))):
        for path in _list_files(directory):
            if path.endswith(SUFFIX):
                yield _item(WHERE, None, [path], False, False)


def _shard_lists() -> Iterator[StoredItem]:
    if files := _list_files(lists_directory()):
        yield _item(SHARDS, f"{counted(len(files), 'list')} of the shards that states are over", files, False, False)


def _logs(directory: str, used: set[str]) -> Iterator[StoredItem]:
    """The name of a log does not identify its mount point with certainty, so no log counts as gone."""
    for path in _list_files(directory, re.compile(r".+\.[0-9a-f]{8}\.log|[0-9a-f]{32}\.log")):
        if path.endswith(LOG_SUFFIX):
            yield _item(LOG, os.path.basename(path), [path], False, path in used)


def _list_files(directory: str, ours: re.Pattern[str] = _OURS) -> list[str]:
    try:
        names = sorted(os.listdir(directory))
    except FileNotFoundError:
        return []
    paths = [os.path.join(directory, name) for name in names if ours.fullmatch(name)]
    return [path for path in paths if os.path.isfile(path) and not os.path.islink(path)]


def _item(
    kind: str, about: str | None, files: list[str], is_gone: bool, is_used: bool, is_silent: bool = False
) -> StoredItem:
    size, used = 0, 0.0
    for path in files:
        with suppress(FileNotFoundError):
            status = os.lstat(path)
            size += status.st_size
            # `list_storage` itself reads dataset files and states, which may change their access times.
            used = max(used, status.st_mtime, 0 if path.endswith((DATASET_SUFFIX, STATE_SUFFIX)) else status.st_atime)
    return StoredItem(kind, about and shown(about), tuple(files), size, used, is_gone, is_used, is_silent)


def _are_gone(paths: list[str], found: _Found) -> bool:
    return bool(paths) and all(path in found and found[path].is_gone for path in paths)


def _is_silent(paths: list[str], found: _Found) -> bool:
    return not all(path in found for path in paths)


def _resolved(path: str, found: _Found) -> str:
    """The path without links. If it is silent, nobody knows whether it has any."""
    return found[path].resolved if path in found else path


def _mounts() -> list[Mount]:
    with suppress(OSError):
        return [mount for mount in mounts() if mount.kind == "fuse.touchfs"]
    return []
