"""Opening a dataset, and indexing what of it is not indexed yet.

Opening one that is indexed costs a listing and a few stats a shard, and the reading of one small file, the *dataset
file*, which keeps for each shard what it was (its files' identities) when its catalog was made. No catalog is touched
before something in its shard is. Where a shard is new, or is another one by now, its catalog is made first; that is
all that `touchfs index` does. A dataset file is only a summary: without it, catalogs are opened to see whose they are.

A compressed shard is decompressed before (`touchfs.indexing.preparing`), as long as its decompressed form is not there.

What has which key is told by the index of keys, one file over all shards, made last. Without it all else works.

All these live in the user's cache directory, named by a hash of the shard's or source's path and of what else they
depend on, or with `in_place` in `.touchfs-index/` beside the data, where paths are relative and all may be moved.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any, get_origin, get_type_hints

import platformdirs

from touchfs import jobs
from touchfs.dataset import Dataset, Shard
from touchfs.errors import FormatError, NotFoundError, SourceError, TouchfsError, UsageError
from touchfs.indexing.preparing import (
    CATALOG_SUFFIX,
    Notice,
    find_prepared,
    hold,
    is_notice,
    is_waiting,
    prepare_shards,
)
from touchfs.progress import Progress
from touchfs.shard.catalog import VERSION, Catalog, Facts
from touchfs.shard.find import find_shards
from touchfs.shard.key_builder import KeyedShard, build_keys
from touchfs.shard.keys import Keys, joined
from touchfs.shard.names import assign
from touchfs.shard.open import fingerprint, shard_name
from touchfs.shard.options import DEFAULT, Decompress, Options
from touchfs.source.atomic import atomic_file
from touchfs.source.local import FileIdentity
from touchfs.view.catalogs import make_catalog

INDEX_DIRECTORY = ".touchfs-index"
_SHARD_TYPES = {name: get_origin(kind) or kind for name, kind in get_type_hints(Shard).items()}


def open_dataset(
    source: str,
    *,
    options: Options = DEFAULT,
    in_place: bool = False,
    force: bool = False,
    executor: Executor | None = None,
    progress: Progress = lambda done, total: None,
    preparing: Progress = lambda done, total: None,
    indexed_now: Callable[[str], None] = lambda path: None,
) -> Dataset:
    """Open a dataset, and index what of it is not indexed yet, or all of it with `force`.

    `progress` hears how many bytes of shards are indexed, of how many; before that, `preparing` how many of compressed
    ones are decompressed. `indexed_now` hears the path of each shard that is indexed. Raises UsageError, NotFoundError
    or FormatError for the source as a whole, SourceError where no index can be written; what is wrong with one shard is
    in its `report`.
    """
    if not source:
        raise UsageError("the source is empty: is a variable unset?")
    source = os.path.abspath(source)
    paths = [os.path.abspath(path) for path in find_shards(source)]
    place = index_place(source, in_place=in_place)

    def indexed(path: str, suffix: str) -> str:
        """Where the index of a shard or source is."""
        told = os.path.relpath(path, place) if in_place else path
        return os.path.join(place, _digest(f"{VERSION}\0{options}\0{told}") + suffix)

    dataset_file = indexed(source, ".dataset.json")
    known = {} if force else _load(dataset_file)
    shards = {path: shard for path in paths if (shard := known.get(path)) is not None and _is_current(shard, options)}
    held = find_prepared(dict.fromkeys(paths))
    # What was decompressed in vain, and what is empty, is known from its catalog alone.
    missing = [path for path, form in held.items() if form is None and (path not in shards or shards[path].size)]
    if missing:
        _make_directory(place)
    for path, outcome in prepare_shards(
        missing, options.decompress, lambda path: indexed(path, ""), executor, preparing
    ):
        if isinstance(outcome, Notice):
            shards[path] = _shard(path, outcome.path, outcome.facts)
        else:
            held[path] = outcome
    tasks = [
        _Task(path, indexed(path, CATALOG_SUFFIX), options, force)
        for path in dict.fromkeys(paths)
        if path not in shards
    ]
    if tasks:
        sized = [(task, _size(task.path)) for task in tasks]
        for shard in jobs.run_sized(_index, sized, executor, progress=progress):
            shards[shard.path] = shard
            indexed_now(shard.path)
    names = map(os.fsdecode, unique_names(paths))
    named = [_named(shards[path], name) for path, name in zip(paths, names, strict=True)]
    lasting = {shard.path: shard for shard in named if not is_notice(shard)}
    if tasks or missing or known.keys() != lasting.keys():
        with suppress(SourceError):  # what has been indexed is known from the catalogs, too
            _save(dataset_file, source, lasting.values())
    keys = _open_keys(indexed(source, ".keys"), named, executor, force=force)
    dataset = Dataset(source, named, keys, options.limits)
    hold(dataset, held.values())
    return dataset


def _named(shard: Shard, name: str) -> Shard:
    return shard if shard.name == name else replace(shard, name=name)


def _open_keys(path: str, shards: Sequence[Shard], executor: Executor | None, *, force: bool) -> Keys | str:
    """The index of keys at `path`, made if it is not that of these shards; or why there is none."""
    identities = [shard.identity for shard in shards]
    known = None
    if not force:
        with suppress(NotFoundError, FormatError, SourceError):
            known = Keys(path)
    if known is None or known.identities != joined(identities):
        named = zip(identities, shards, strict=True)
        keyed = [KeyedShard(identity, shard.samples, shard.catalog) for identity, shard in named]
        try:
            build_keys(path, keyed, known, executor)
            known = Keys(path)
        except TouchfsError as error:
            return str(error)
    return known if len(known) else "no sample has a key of its own"


def index_place(source: str, *, in_place: bool = False) -> str:
    """The directory for a source's catalogs."""
    if not in_place:
        return os.path.join(platformdirs.user_cache_dir("touchfs"), "index")
    source = os.path.abspath(source)
    return os.path.join(source if os.path.isdir(source) else os.path.dirname(source), INDEX_DIRECTORY)


def unique_names(paths: Sequence[str]) -> list[bytes]:
    """The shards' directory names in the tree: what each is called by its path, `~n` for repeated ones."""
    stems = [shard_name(path) for path in paths]
    return [name for _, (name,) in assign(stems, [[None] for _ in stems])]


@dataclass(frozen=True, slots=True)
class _Task:
    path: str
    catalog: str
    options: Options
    force: bool


def _index(task: _Task) -> Shard:
    facts = None if task.force else _known_facts(task)
    if facts is None:
        _make_directory(os.path.dirname(task.catalog))
        facts = make_catalog(task.path, task.catalog, task.options)
    return _shard(task.path, task.catalog, facts)


def _make_directory(place: str) -> None:
    try:
        os.makedirs(place, exist_ok=True)
    except OSError as error:
        told = f"no index can be written: {error.strerror}; $XDG_CACHE_HOME or --in-place name another place"
        raise SourceError(told, path=place) from error


def _shard(path: str, catalog: str, facts: Facts) -> Shard:
    return Shard(
        name="",
        path=path,
        files=dict(facts.files),
        catalog=catalog,
        samples=facts.samples,
        seconds=facts.seconds,
        size=facts.size,
        index_size=facts.index_size,
        catalog_size=os.path.getsize(catalog),
        damaged=facts.damaged,
        report=facts.report,
    )


def _known_facts(task: _Task) -> Facts | None:
    """What the catalog tells that is there already, if it is of this shard as it is."""
    try:
        facts = Catalog(task.catalog).facts
    except TouchfsError:
        return None
    return facts if facts.files == _files(task.path) else None


def _is_current(shard: Shard, options: Options) -> bool:
    """Where decompressing it has failed, that is what is told until it is tried again."""
    is_known = options.decompress is Decompress.LATER and is_waiting(shard)
    try:
        return (is_known or _files(shard.path) == shard.files) and (
            os.path.getsize(shard.catalog) == shard.catalog_size
        )
    except OSError:
        return False


def _size(path: str) -> int:
    """What a shard counts for when progress is shown."""
    return sum(identity.size for identity in (_files(path) or {}).values())


def _files(path: str) -> dict[str, FileIdentity] | None:
    """The identities of a shard's files: none of a shard that is not there, and None where that cannot be known."""
    try:
        return fingerprint(path)
    except NotFoundError:
        return {}
    except TouchfsError:
        return None


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(errors="surrogateescape"), digest_size=16).hexdigest()


def _load(path: str) -> dict[str, Shard]:
    """The shards of a dataset file by path; nothing where there is none that can be used, which costs time only."""
    try:
        with open(path, encoding="utf-8") as file:
            told = json.load(file)
        if told["version"] != VERSION:
            return {}
        return {shard.path: shard for shard in map(_parse_shard, told["shards"])}
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return {}


def _parse_shard(told: dict[str, Any]) -> Shard:
    files = {name: FileIdentity(**identity) for name, identity in told["files"].items()}
    shard = Shard(**{**told, "files": files})
    for name, kind in _SHARD_TYPES.items():
        if not isinstance(getattr(shard, name), kind):
            raise TypeError(f"{name} is not of {kind}")
    return shard


def _save(path: str, source: str, shards: Iterable[Shard]) -> None:
    told = {"version": VERSION, "source": source, "shards": [asdict(shard) for shard in shards]}
    with atomic_file(path) as file:
        file.write(json.dumps(told).encode())
