"""Open a dataset, and index the parts of it that are not indexed yet.

Opening an indexed dataset costs a listing and a few stats a shard, and reading one small file, the *dataset file*. It
has, for each shard, the identities of its files when its catalog was made. No catalog is touched before something in
its shard is read. If a shard is new or has changed, its catalog is made first; `touchfs index` does nothing else. A
dataset file is only a summary: without it, catalogs are opened to see which shards they belong to.

A compressed shard is decompressed first (`touchfs.indexing.preparing`), unless its decompressed form exists already.

The index of keys, one file over all shards and made last, finds the samples of a key. Everything else works without it.

All these files are in the user's cache directory, named by a hash of the path of the shard or source and of the
options, or with `in_place` in `.touchfs-index/` beside the data, where paths are relative and everything may be moved
together.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import chain
from types import MappingProxyType
from typing import NamedTuple

from touchfs import jobs
from touchfs.catalog.catalog import VERSION
from touchfs.dataset import Dataset, Shard, counted
from touchfs.dataset.key_index import open_keys
from touchfs.errors import (
    NotFoundError,
    SourceError,
    TouchfsError,
    UntrustedError,
    UnwritableError,
    UsageError,
)
from touchfs.indexing.dataset_file import DATASET_SUFFIX, DatasetFile, load_dataset_file, save_dataset_file
from touchfs.indexing.in_memory import index_in_memory
from touchfs.indexing.index_task import IndexTask, has_catalog, index_shard, shard_of
from touchfs.indexing.interleaved import open_interleaved
from touchfs.indexing.moved import take_over
from touchfs.indexing.place import check_place, index_place, make_place
from touchfs.indexing.preparing import (
    CATALOG_SUFFIX,
    Notice,
    find_prepared,
    hold,
    is_notice,
    is_waiting,
    prepare_shards,
)
from touchfs.indexing.published.fetch import Fetched, fetch_index
from touchfs.indexing.silent import shards_of_silent, silent_notice, silent_paths
from touchfs.names import assign, hex_digest
from touchfs.posix.paths import absolute, check_url, is_url, shown
from touchfs.progress import Progress
from touchfs.shard.find import candidates, find_shards
from touchfs.shard.open import fingerprints_with_lists, shard_name
from touchfs.shard.options import DEFAULT, Decompress, Options
from touchfs.source.data import Look, find_type
from touchfs.source.fingerprint import Files
from touchfs.source.store import FileType

log = logging.getLogger(__name__)

# Bytes of a shard above which its samples may be visited by several processes: less takes a second in one.
_BIG = 1 << 23


def open_dataset(
    source: str,
    *,
    options: Options = DEFAULT,
    in_place: bool = False,
    in_memory: bool = False,
    must_keep: bool = False,
    force: bool = False,
    full: bool = False,
    executor: Executor | None = None,
    progress: Progress = lambda done, total: None,
    preparing: Progress = lambda done, total: None,
    finding_items: Progress = lambda done, total: None,
    indexed_now: Callable[[str], None] = lambda path: None,
    patience_seconds: float | None = None,
) -> Dataset:
    """Open a dataset, and index the shards that are not indexed yet, or all with `force`.

    With `full`, recordings are read whose length no header has, also those of shards that are indexed without.
    `progress` is called with the bytes of shards that are indexed and their total; before that, `preparing` with the
    bytes of compressed shards that are decompressed and their total, and after it `finding_items` with those in which
    interleaved samples are looked for. `indexed_now` is called with the path of each shard that is indexed. Raises
    UsageError, NotFoundError or FormatError for the source as a whole, and SourceError if no index can be written;
    problems of one shard are in its `report`. With `in_memory` the index is made for this process and its forks. The
    same happens, with a line in the log, if we cannot write the index, or others can; with `must_keep` that is an
    error.

    With `patience_seconds` a shard that does not answer for this long is not waited for. It is served as it was when it
    was indexed; if it never was, it shows a text with the reason.
    """
    if not source:
        raise UsageError("the path of the dataset is empty: is a variable unset?")
    check_url(source)
    root = options.limits.audio_root
    if root is not None and is_url(root):
        check_url(root)  # most stores have no directories that could be looked for
    elif root is not None and find_type(root) is not FileType.DIRECTORY:
        raise NotFoundError("no such directory of audio", path=root)
    source = absolute(source)
    place = index_place(source, in_place=in_place)
    look, silent = Look(), frozenset[str]()
    if patience_seconds is not None:
        silent = silent_paths(candidates(source, look, locations=options.limits.locations), patience_seconds, look)
    work = _Work(source, options, force, full, executor, progress, preparing, finding_items, indexed_now, silent, look)
    try:
        if not in_memory:
            check_place(place, source)
            return _open(work, place, in_place=in_place)
    except (UntrustedError, UnwritableError) as error:
        if must_keep:
            raise
        log.warning("%s: the index is kept in memory", error)
    return _open(work, index_in_memory(), in_place=False)


class _Work(NamedTuple):
    """The arguments of `open_dataset`, the shards that do not answer, and the one look at all others."""

    source: str
    options: Options
    force: bool
    full: bool
    executor: Executor | None
    progress: Progress
    preparing: Progress
    finding_items: Progress
    indexed_now: Callable[[str], None]
    silent: Collection[str]
    look: Look


def _open(work: _Work, place: str, *, in_place: bool) -> Dataset:
    """Open a dataset whose index is in the directory `place`, or will be made there."""
    source, options, force, full, executor, progress, preparing, finding_items, indexed_now, silent, look = work
    limits = options.limits
    found = find_shards(source, silent, look, audio_root=limits.audio_root, locations=limits.locations)
    paths = [absolute(path) for path in found]
    distrusted: list[str] = []

    def index_path(path: str, suffix: str) -> str:
        """The path of an index file for a shard or source."""
        name = os.path.relpath(path, place) if in_place else path
        return os.path.join(place, _digest(f"{VERSION}\0{options.hashed}\0{name}") + suffix)

    dataset_file = index_path(source, DATASET_SUFFIX)
    before = DatasetFile(source) if force else load_dataset_file(dataset_file, source, distrusted)
    known, moved_from = before.shards, before.moved_from
    paths, unseen = shards_of_silent(paths, set(map(absolute, silent)), known)
    seen = {path: _files(path, look) for path in dict.fromkeys(paths) if path not in unseen}
    shards = {
        path: shard
        for path in paths
        if (shard := known.get(path)) is not None
        and os.path.dirname(shard.catalog) == place
        and (path in unseen or _is_current(shard, seen[path], options))
        and not (full and shard.unmeasured)
        and has_catalog(shard, distrusted)
    }
    for path in unseen - shards.keys():
        make_place(place)
        notice = silent_notice(path, index_path(path, ""))
        shards[path] = shard_of(path, notice.path, notice.facts)
    decompressed = find_prepared({path: files or {} for path, files in seen.items()})
    # A shard whose decompression failed, or that is empty, is known from its catalog alone.
    missing = {
        path: seen[path] or {}
        for path, form in decompressed.items()
        if form is None and (path not in shards or shards[path].size)
    }
    if missing:
        make_place(place)
    for path, outcome in prepare_shards(
        missing, options.decompress, lambda path: index_path(path, ""), executor, preparing
    ):
        if isinstance(outcome, Notice):
            shards[path] = shard_of(path, outcome.path, outcome.facts)
        else:
            decompressed[path] = outcome
    if not force and not in_place:  # an index in place moves with its data
        new = [path for path in paths if path not in shards and not os.path.lexists(index_path(path, CATALOG_SUFFIX))]
        moved = take_over(
            place, {path: seen[path] or {} for path in new}, lambda path: index_path(path, CATALOG_SUFFIX)
        )
        moved_from = next(iter(moved.values()), moved_from)
    tasks = [
        IndexTask(path, index_path(path, CATALOG_SUFFIX), options, force, full, seen[path])
        for path in dict.fromkeys(paths)
        if path not in shards
    ]
    fetched = Fetched()
    if not force and not in_place:
        wanted = {task.path: task.files for task in tasks if task.files}
        fetched = fetch_index(source, options, wanted, look, index_path)
    if tasks:
        sized = [(task, sum(file.size for file in (task.files or {}).values())) for task in tasks]
        # A shard with most of the bytes would keep one process busy when all others are done.
        most = sum(size for _, size in sized) / 2
        big = [(task, size) for task, size in sized if size > max(most, _BIG)]
        rest = [(task, size) for task, size in sized if size <= max(most, _BIG)]
        for shard, problem, is_new in chain(
            jobs.run_sized(index_shard, rest, executor, progress=progress),
            jobs.run_sized(partial(index_shard, executor=executor), big, progress=progress),
        ):
            shards[shard.path] = shard
            distrusted += [problem] if problem else []
            if is_new:
                indexed_now(shard.path)
                if shard.path in fetched.catalogs:
                    log.warning("%s: its published catalog is damaged: indexed again", shown(shard.path))
    names = map(os.fsdecode, unique_names(paths, {path: shard.files for path, shard in shards.items()}))
    named = [_named(shards[path], name) for path, name in zip(paths, names, strict=True)]
    permanent = {shard.path: shard for shard in named if not is_notice(shard)}
    if tasks or missing or known.keys() != permanent.keys():
        with suppress(SourceError):  # the catalogs have the same facts
            save_dataset_file(dataset_file, source, permanent.values(), moved_from)
    if not named:  # else the place was made for their catalogs
        make_place(place)
    keys = open_keys(index_path(source, ".keys"), source, named, executor, distrusted, force=force)
    dataset = Dataset(source, named, keys, options.limits, moved_from, unseen)
    hold(dataset, decompressed.values())
    dataset.interleaved = open_interleaved(
        dataset,
        index_path,
        options,
        force=force,
        executor=executor,
        progress=finding_items,
        distrusted=distrusted,
        without=fetched.without_items,
    )
    if distrusted:
        others = f" (and {counted(len(distrusted) - 1, 'other file')})" if len(distrusted) > 1 else ""
        log.warning("%s: not read, and made anew%s; --trust USER believes what they write", distrusted[0], others)
    return dataset


def _named(shard: Shard, name: str) -> Shard:
    return shard if shard.name == name else replace(shard, name=name)


def unique_names(paths: Sequence[str], files: Mapping[str, Files] = MappingProxyType({})) -> list[bytes]:
    """The shards' directory names in the tree: the name of each by its path, with `~n` for repeated names.

    `files` has the fingerprints of shards by path.
    """
    stems = [shard_name(path, files.get(path, {})) for path in paths]
    return [name for _, (name,) in assign(stems, [[None] for _ in stems])]


def _is_current(shard: Shard, files: Files | None, options: Options) -> bool:
    """True if the known facts are current. After a failed decompression they are, until the next attempt."""
    return files == shard.files or (options.decompress is Decompress.LATER and is_waiting(shard))


def _files(path: str, look: Look) -> Files | None:
    """Fingerprints of a shard's files: empty if it does not exist, None if that is unknown."""
    try:
        return fingerprints_with_lists(path, look)
    except NotFoundError:
        return {}
    except TouchfsError:
        return None


def _digest(text: str) -> str:
    return hex_digest(text.encode(errors="surrogateescape"))
