"""The steps of opening a dataset: find its shards, collect what is known of each, and index the others."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType

from touchfs.catalog.catalog import VERSION
from touchfs.dataset import Dataset, Shard, counted
from touchfs.dataset.key_index import open_keys
from touchfs.errors import NotFoundError, SourceError, TouchfsError
from touchfs.indexing.dataset_file import DATASET_SUFFIX, DatasetFile, load_dataset_file, save_dataset_file
from touchfs.indexing.index_task import IndexTask, has_catalog, index_again, index_shards, shard_of, warn_of_damage
from touchfs.indexing.interleaved import open_interleaved
from touchfs.indexing.moved_indexes import take_over
from touchfs.indexing.place import make_place
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
from touchfs.indexing.silent import shards_of_silent, silent_notice
from touchfs.names import assign, distinct, hex_digest, quote
from touchfs.posix.paths import absolute, is_url, shown
from touchfs.posix.threads import run_at_once
from touchfs.progress import Progress
from touchfs.shard.directory.left_out import LeftOutFiles
from touchfs.shard.directory.splits import in_order
from touchfs.shard.find import FoundShard, find
from touchfs.shard.open import fingerprints_with_lists, renewed, shard_name
from touchfs.shard.options import Decompress, Options
from touchfs.source.data import Look
from touchfs.source.fingerprint import Files
from touchfs.source.remote.options import StorageOptions
from touchfs.source.scratch.file import ScratchFile

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Opening:
    """One opening of a dataset, with the arguments of `open_dataset`.

    The directory `place` has its index, or will have it. `silent` are the shards that do not answer, and `look` is the
    one look at all others. `found` is what the search for shards says of each, by path. `shards` has those whose
    catalogs are there, by path: each step adds some, until none is missing. `has_notes` is true if files of current
    shards have another ctime than before. `distrusted` are reasons why files of others are not used. `damaged` are
    damaged files of the index.
    """

    source: str
    options: Options
    place: str
    in_place: bool
    force: bool
    full: bool
    executor: Executor | None
    progress: Progress
    preparing: Progress
    finding_items: Progress
    indexed_now: Callable[[str], None]
    silent: Collection[str]
    look: Look
    found: dict[str, FoundShard] = field(default_factory=dict, init=False)
    shards: dict[str, Shard] = field(default_factory=dict, init=False)
    has_notes: bool = field(default=False, init=False)
    distrusted: list[str] = field(default_factory=list, init=False)
    damaged: list[str] = field(default_factory=list, init=False)
    left_out: LeftOutFiles = field(default_factory=LeftOutFiles, init=False)

    def run(self) -> Dataset:
        """Take all steps, and return the dataset. Raises as `open_dataset`."""
        dataset_file = self._index_path(self.source, DATASET_SUFFIX)
        before = load_dataset_file(dataset_file, self.source, self.distrusted)
        known = DatasetFile(self.source) if self.force else before
        paths, unseen = self._find(known)
        seen = _look_at([path for path in dict.fromkeys(paths) if path not in unseen], self.look)
        seen = {path: files and self._renewed(path, before, files) for path, files in seen.items()}
        self._take_current(known, seen, unseen)
        self._add_silent(unseen)
        forms = self._decompress(seen)
        moved_from = self._take_over_moved(seen) or known.moved_from
        fetched = self._fetch(seen)
        self._index(seen, fetched)
        shards = self._named(paths)
        self._save(dataset_file, known, shards, moved_from)
        dataset = self._assemble(shards, moved_from, unseen, fetched)
        hold(dataset, forms)
        self._warn()
        return dataset

    def _index_path(self, path: str, suffix: str) -> str:
        """The path of an index file for a shard, or for the source, of which each split has files of its own."""
        return self._hashed_path(path, self._options_of(path), suffix)

    def _hashed_path(self, path: str, options: Options, suffix: str) -> str:
        name = os.path.relpath(path, self.place) if self.in_place else path
        if path == self.source and options.split is not None:
            name += f"\0{options.split}"
        hashed = f"{VERSION}\0{options.hashed}\0{name}"
        return os.path.join(self.place, hex_digest(hashed.encode(errors="surrogateescape")) + suffix)

    def _options_of(self, path: str) -> Options:
        """The options for reading the shard at a path: its rows have the values of its directories."""
        found = self.found.get(path)
        return self.options if found is None else replace(self.options, partition=found.partition)

    def _catalog_path(self, path: str) -> str:
        return self._index_path(path, CATALOG_SUFFIX)

    def _catalog_of(self, path: str, partition: str) -> str:
        """The path of the catalog of a shard that has, or had, the values of a partition."""
        return self._hashed_path(path, replace(self.options, partition=partition), CATALOG_SUFFIX)

    def _find(self, known: DatasetFile) -> tuple[list[str], set[str]]:
        """The paths of the shards in order, where one may be twice, and those of them that do not answer."""
        limits = self.options.limits
        found = find(
            self.source,
            self.silent,
            self.look,
            audio_root=limits.audio_root,
            locations=limits.locations,
            split=self.options.split,
        )
        self.left_out = found.left_out
        paths = [absolute(shard.path) for shard in found.shards]
        self.found = dict(zip(paths, found.shards, strict=True))
        return shards_of_silent(paths, set(map(absolute, self.silent)), known.shards)

    def _take_current(self, known: DatasetFile, seen: Mapping[str, Files | None], unseen: Collection[str]) -> None:
        """Take the shards of the dataset file that are as they were indexed, or do not answer."""
        for path in (*seen, *unseen):
            shard = known.shards.get(path)
            if (
                shard is not None
                and os.path.dirname(shard.catalog) == self.place
                and (path not in self.found or shard.partition == self.found[path].partition)
                and (path in unseen or self._is_current(shard, seen[path]))
                and not (self.full and shard.unmeasured)
                and has_catalog(shard, self.distrusted)
            ):
                files = seen.get(path)
                if files is not None and files == shard.files and files is not shard.files:
                    shard = replace(shard, files=dict(files))
                self.shards[path] = shard

    def _renewed(self, path: str, before: DatasetFile, files: Files) -> Files:
        """The fingerprints of a shard's files with what is known of them."""
        known = before.shards[path].files if path in before.shards else {}
        files = renewed(path, known, files)
        self.has_notes |= files == known and files is not known
        return files

    def _is_current(self, shard: Shard, files: Files | None) -> bool:
        """True if the known facts are current. After a failed decompression they are, until the next attempt."""
        return files == shard.files or (self.options.decompress is Decompress.LATER and is_waiting(shard))

    def _add_silent(self, unseen: Collection[str]) -> None:
        """Add shards that do not answer and were never indexed, each with a text instead of its samples."""
        for path in unseen - self.shards.keys():
            make_place(self.place)
            self._add_notice(path, silent_notice(path, self._index_path(path, "")))

    def _add_notice(self, path: str, notice: Notice) -> None:
        self.shards[path] = shard_of(path, notice.path, notice.facts)

    def _decompress(self, seen: Mapping[str, Files | None]) -> list[list[ScratchFile]]:
        """Decompress shards whose decompressed forms are missing. Returns the forms of all shards, to be held.

        Adds the shards that cannot be decompressed, or not now.
        """
        prepared = find_prepared({path: files or {} for path, files in seen.items()})
        # A shard whose decompression failed, or that is empty, is known from its catalog alone.
        missing = {
            path: seen[path] or {}
            for path, forms in prepared.items()
            if forms is None and (path not in self.shards or self.shards[path].size)
        }
        if missing:
            make_place(self.place)
        forms = [forms for forms in prepared.values() if forms is not None]
        for path, outcome in prepare_shards(
            missing, self.options.decompress, lambda path: self._index_path(path, ""), self.executor, self.preparing
        ):
            if isinstance(outcome, Notice):
                self._add_notice(path, outcome)
            else:
                forms.append(outcome)
        return forms

    def _missing(self, seen: Mapping[str, Files | None]) -> dict[str, Files | None]:
        """The shards that must be indexed, with their files."""
        return {path: files for path, files in seen.items() if path not in self.shards}

    def _take_over_moved(self, seen: Mapping[str, Files | None]) -> str:
        """Reuse the catalogs of shards that were moved. Returns the source that they were indexed in, or ""."""
        if self.force or self.in_place:  # an index in place moves with its data
            return ""
        missing = {
            path: (files or {}, self._options_of(path).partition)
            for path, files in self._missing(seen).items()
            if not os.path.lexists(self._catalog_path(path))
        }
        return next(iter(take_over(self.place, missing, self._catalog_of).values()), "")

    def _fetch(self, seen: Mapping[str, Files | None]) -> Fetched:
        """Copy the catalogs of a published index."""
        if self.force or self.in_place:
            return Fetched()
        missing = {
            path: (files, self._options_of(path).partition) for path, files in self._missing(seen).items() if files
        }
        return fetch_index(self.source, self.options, missing, self.look, self._index_path)

    def _index(self, seen: Mapping[str, Files | None], fetched: Fetched) -> None:
        """Add all shards that are missing: with the catalogs that are at their paths by now, or with new ones."""
        tasks = [
            IndexTask(path, self._catalog_path(path), self._options_of(path), self.force, self.full, files)
            for path, files in self._missing(seen).items()
        ]
        for indexed in index_shards(tasks, self.executor, self.progress):
            shard = self.shards[indexed.shard.path] = indexed.shard
            self.distrusted += [indexed.untrusted] if indexed.untrusted else []
            if indexed.is_new:
                self.indexed_now(shard.path)
            if indexed.is_damaged and shard.path in fetched.catalogs:
                log.warning("%s: its published catalog is damaged: indexed again", shown(shard.path))
            elif indexed.is_damaged:
                self.damaged.append(shard.catalog)

    def _named(self, paths: Sequence[str]) -> list[Shard]:
        """The shards at these paths, with their names, and what the search for them says."""
        names = unique_names(paths, {path: shard.files for path, shard in self.shards.items()})
        shards = [self._named_shard(path, os.fsdecode(name)) for path, name in zip(paths, names, strict=True)]
        splits = in_order(shard.split for shard in shards)
        if len(splits) < 2:
            return shards
        # A shard of no split is beside the directories, and keeps its name.
        beside = [shard.name for shard in shards if not shard.split]
        shown = distinct([*beside, *(os.fsdecode(quote(split)) for split in splits)])[len(beside) :]
        directories = {"": "", **{split: f"{name}/" for split, name in zip(splits, shown, strict=True)}}
        return [replace(shard, directory=directories[shard.split]) for shard in shards]

    def _named_shard(self, path: str, name: str) -> Shard:
        """The shard at a path, with its name. What the search says of one below a silent directory is known already."""
        shard = replace(self.shards[path], name=name, directory="")
        found = self.found.get(path)
        return shard if found is None else replace(shard, split=found.split, partition=found.partition)

    def _save(self, path: str, known: DatasetFile, shards: Sequence[Shard], moved_from: str) -> None:
        """Write the dataset file if it says anything else now, also of the times of unchanged files."""
        lasting = {shard.path: shard for shard in shards if not is_notice(shard)}
        file = DatasetFile(self.source, lasting, moved_from, self.options.split)
        if file != known or self.has_notes:
            with suppress(SourceError):  # the catalogs have the same facts
                save_dataset_file(path, file)

    def _assemble(self, shards: Sequence[Shard], moved_from: str, unseen: Collection[str], fetched: Fetched) -> Dataset:
        """The dataset of these shards, with its index of keys and its interleaved samples."""
        if not shards:  # else the place was made for their catalogs
            make_place(self.place)
        keys = open_keys(
            self._index_path(self.source, ".keys"),
            self.source,
            shards,
            self.executor,
            self.distrusted,
            self.damaged,
            force=self.force,
        )
        again = partial(index_again, self.options)
        dataset = Dataset(
            self.source,
            shards,
            keys,
            self.options.limits,
            moved_from=moved_from,
            unseen=unseen,
            split=self.options.split,
            index_again=again,
        )
        dataset.left_out = self.left_out
        dataset.damaged = self.damaged
        dataset.interleaved = open_interleaved(
            dataset,
            self._index_path,
            self.options,
            force=self.force,
            executor=self.executor,
            progress=self.finding_items,
            distrusted=self.distrusted,
            damaged=self.damaged,
            without=fetched.without_items,
        )
        return dataset

    def _warn(self) -> None:
        for path in self.damaged:
            warn_of_damage(path)
        if self.distrusted:
            first, *others = self.distrusted
            rest = f" (and {counted(len(others), 'other file')})" if others else ""
            log.warning("%s: not read, and made anew%s; --trust USER believes what they write", first, rest)


def unique_names(paths: Sequence[str], files: Mapping[str, Files] = MappingProxyType({})) -> list[bytes]:
    """The shards' directory names in the tree: the name of each by its path, with `~n` for repeated names.

    `files` has the fingerprints of shards by path.
    """
    stems = [shard_name(path, files.get(path, {})) for path in paths]
    return [name for _, (name,) in assign(stems, [[None] for _ in stems])]


def _look_at(paths: Sequence[str], look: Look) -> dict[str, Files | None]:
    """Look at each shard as `_files` does, at several of other stores at once."""
    files = partial(_files, look=look)
    threads = StorageOptions.configured().requests if any(map(is_url, paths)) else 1
    # The first one alone: then it is known what lies beside all of them.
    found = [*map(files, paths[:1]), *run_at_once(files, paths[1:], threads)]
    return dict(zip(paths, found, strict=True))


def _files(path: str, look: Look) -> Files | None:
    """Fingerprints of a shard's files: empty if it does not exist, None if that is unknown."""
    try:
        return fingerprints_with_lists(path, look)
    except NotFoundError:
        return {}
    except TouchfsError:
        return None
