"""The steps of opening a dataset: find its shards, collect what is known of each, and index the others when needed.

They are in one file of over 500 lines, because each step uses what those before it have found.
"""

from __future__ import annotations

import logging
import os
from bisect import bisect
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from shlex import quote as shell_quote
from typing import TypeVar

from touchfs.catalog.catalog import VERSION
from touchfs.core.errors import NotFoundError, SourceError, TouchfsError, UntrustedError, UnwritableError
from touchfs.core.location import Location
from touchfs.core.names import distinct, hex_digest, quote
from touchfs.core.progress import Progress, unshown
from touchfs.core.urls import shown
from touchfs.dataset import Dataset, IndexedShards, Indexer, counted
from touchfs.dataset.key_index import open_keys
from touchfs.dataset.shard import ListedShard, Shard
from touchfs.indexing.dataset_file import DATASET_SUFFIX, DatasetFile, load_dataset_file, save_dataset_file
from touchfs.indexing.in_memory import index_in_memory
from touchfs.indexing.index_task import (
    IndexTask,
    has_catalog,
    headers_of,
    index_again,
    index_shards,
    read_headers,
    shard_of,
    warn_of_damage,
)
from touchfs.indexing.interleaved import open_interleaved
from touchfs.indexing.moved_indexes import take_over
from touchfs.indexing.overlays.named import find_overlays, overlays_hash, overlays_of
from touchfs.indexing.place import make_place
from touchfs.indexing.preparing import (
    CATALOG_SUFFIX,
    Notice,
    find_prepared,
    hold,
    is_large,
    is_notice,
    is_waiting,
    prepare_shards,
)
from touchfs.indexing.published.fetch import Fetched, fetch_index
from touchfs.indexing.published.listing import KEYS_SUFFIX
from touchfs.indexing.silent import shards_of_silent, silent_notice
from touchfs.posix.threads import run_at_once
from touchfs.registry.containers import Container
from touchfs.registry.directory.left_out import LeftOutFiles
from touchfs.registry.directory.splits import in_order
from touchfs.registry.find import find
from touchfs.registry.found import FoundShard, unique_names
from touchfs.registry.open import KnownShard, known_shard, shard_at
from touchfs.shard.options import Decompress, Options
from touchfs.source.data import Look
from touchfs.source.fingerprint import Files
from touchfs.source.remote.storage_options import StorageOptions
from touchfs.source.scratch.file import ScratchFile

log = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(slots=True)
class Opening:
    """One opening of a dataset, with the arguments of `open_dataset`. It finds the shards at once, and indexes them
    when the dataset asks for them.

    With `below`, a path in the tree, it is of the shards there alone, with the names that they have among all, and an
    index of keys of its own. The directory `place` has the index, or will have it. `silent` are the shards that do not
    answer, and `look` is the one look at all others. `found` is what the search for shards says of each, by path, and
    `seen` has the files of each, but of those that are `unseen`. `containers` has the container of each. `listed` are
    the shards in order, of which a list may name one twice. `shards` has those whose catalogs are there, by path.
    `has_notes` is true if files of current shards have another ctime than before. `distrusted` are reasons why files of
    others are not used. `damaged` are damaged files of the index, of which the log has the first `warned`. `forms` are
    decompressed forms of shards, to be held. With `gives_way` others do not wait for this process.
    """

    source: Location
    options: Options
    place: str
    in_place: bool
    look: Look
    must_keep: bool = False
    force: bool = False
    full: bool = False
    executor: Executor | None = None
    progress: Progress = unshown
    preparing: Progress = unshown
    finding_items: Progress = unshown
    indexed_now: Callable[[str], None] | None = None
    silent: Collection[str] = frozenset()
    below: str = ""
    gives_way: bool = False
    known: DatasetFile = field(init=False)
    moved_from: str = field(init=False)
    unseen: set[str] = field(init=False)
    seen: dict[str, Files | None] = field(init=False)
    listed: list[ListedShard] = field(init=False)
    found: dict[str, FoundShard] = field(default_factory=dict, init=False)
    containers: dict[str, Container] = field(default_factory=dict, init=False)
    shards: dict[str, Shard] = field(default_factory=dict, init=False)
    has_notes: bool = field(default=False, init=False)
    fetched: list[Fetched] = field(default_factory=list, init=False)
    forms: list[ScratchFile] = field(default_factory=list, init=False)
    distrusted: list[str] = field(default_factory=list, init=False)
    damaged: list[str] = field(default_factory=list, init=False)
    warned: int = field(default=0, init=False)
    left_out: LeftOutFiles = field(default_factory=LeftOutFiles, init=False)
    _hashed: str = field(init=False)

    def __post_init__(self) -> None:
        """Find the shards, and take those that are indexed. Raises as `open_dataset`."""
        self._hashed = self.options.hashed  # the same for nearly all shards, of which there may be 10,000
        before = load_dataset_file(self._dataset_file, self.source.path, self.distrusted)
        self.known = DatasetFile(self.source.path) if self.force else before
        self.moved_from = self.known.moved_from
        paths, self.unseen = self._find()
        seen = self._look_at([path for path in dict.fromkeys(paths) if path not in self.unseen])
        self.seen = {path: files and self._renewed(path, before, files) for path, files in seen.items()}
        self._take_current()
        if self.options.decompress is Decompress.LATER:  # a text that says so is another shard than what comes
            large = {path: files for path, files in self.seen.items() if is_large(self._known(path, files or {}))}
            self._kept(partial(self._decompress, large))
        if not self.has_all:  # all processes that index agree on the place
            self._kept(lambda: make_place(self.place))
        self._kept(self._add_silent)
        self.listed = self._list(paths)
        if self.below:
            self.listed = self._listed_below()
            self.seen = {shard.path: self.seen[shard.path] for shard in self.listed if shard.path in self.seen}
        known = [self._named(place) if each.path in self.shards else each for place, each in enumerate(self.listed)]
        self.listed = known

    def dataset(self) -> Dataset:
        """The dataset of these shards. Raises as `find_overlays`."""
        listed: Sequence[ListedShard] = self.listed
        indexer: Indexer = self
        again = index_again
        named = find_overlays(self.options.overlays)
        beside = overlays_of(self.listed, self.options, self.look)
        if named or beside:
            from touchfs.indexing.overlays.indexer import OverlaidIndexer, join_again  # most datasets have none

            overlaid = OverlaidIndexer(
                self,
                self.listed,
                self.source.path,
                named,
                beside,
                self._index_path,
                self.options,
                force=self.force,
                executor=self.executor,
                distrusted=self.distrusted,
            )
            listed, indexer, again = overlaid.listed, overlaid, join_again
        dataset = Dataset(
            f"{self.source.path}:{self.below}" if self.below else self.source.path,
            listed,
            indexer,
            self.options.limits,
            unseen=self.unseen,
            split=self.options.split,
            index_again=partial(again, self.options),
            overlays=overlays_hash(named) if named else "",
        )
        if not self.below:
            dataset.left_out = self.left_out
        hold(dataset, self.forms)
        return dataset

    @property
    def has_all(self) -> bool:
        return self.seen.keys() <= self.shards.keys()

    @property
    def has_forms(self) -> bool:
        return all(forms is not None for forms in self._forms(self.seen).values())

    def shard(self, position: int) -> Shard:
        path = self.listed[position].path
        if path not in self.unseen:
            # A store may answer in a moment, and the next look tries again.
            raises = Location.of(path).is_url
            self._kept(partial(self._index, {path: self.seen[path]}, raises=raises))
            self._warn()
        return self._named(position)

    def headers(self, position: int) -> Shard:
        listed = self.listed[position]
        if listed.path in self.unseen or self.has(position):
            return self.shard(position)
        raises = Location.of(listed.path).is_url
        shard = self._kept(partial(self._read_headers, listed.path, raises=raises))
        self._warn()
        return self._named(position, shard)

    def all(self) -> IndexedShards:
        indexed = self._kept(self._index_all)
        self._warn()
        return indexed

    def has(self, position: int) -> bool:
        """See `Indexer.has`. Whether a catalog is of its shard as that is now shows only when it is used."""
        listed = self.listed[position]
        return listed.path in self.shards or os.path.lexists(listed.catalog)

    def has_headers(self, position: int) -> bool:
        return os.path.lexists(headers_of(self.listed[position].catalog))

    def _kept(self, step: Callable[[], T]) -> T:
        """The result of a step that writes an index: in memory, if it cannot be kept on this machine."""
        try:
            return step()
        except (UntrustedError, UnwritableError) as error:
            if self.must_keep:
                raise
            log.warning("%s: the index is kept in memory", error)
        self.distrusted.clear()  # the error says it
        self.place, self.in_place = index_in_memory(), False
        return step()

    def _index_all(self) -> IndexedShards:
        self._index(self.seen)
        shards = tuple(map(self._named, range(len(self.listed))))
        self._save(shards)
        return self._assemble(shards)

    def _index(self, seen: Mapping[str, Files | None], *, raises: bool = False) -> None:
        """Take all steps for these shards. If it `raises`, it is an error that one cannot be read now."""
        self._index_missing(seen, self._get_catalogs(seen), raises=raises)

    def _get_catalogs(self, seen: Mapping[str, Files | None]) -> Fetched:
        """Take the steps for these shards before those that have no catalog anywhere are indexed."""
        self._decompress(seen)
        self.moved_from = self._take_over_moved(seen) or self.moved_from
        fetched = self._fetch(seen)
        self.fetched.append(fetched)
        return fetched

    def _read_headers(self, path: str, *, raises: bool) -> Shard:
        self._get_catalogs({path: self.seen[path]})
        if path in self.shards:  # it cannot be decompressed, or not now
            return self.shards[path]
        read = read_headers(self._task(path, self.seen[path], raises=raises))
        self.distrusted += [read.untrusted] if read.untrusted else []
        return read.shard

    @property
    def _dataset_file(self) -> str:
        return self._index_path(self.source.path, DATASET_SUFFIX)

    def _index_path(self, path: str, suffix: str) -> str:
        """The path of an index file for a shard, or for the source, of which each part has files of its own."""
        return self._hashed_path(path, self._options_of(path), suffix)

    def _hashed_path(self, path: str, options: Options, suffix: str) -> str:
        name = os.path.relpath(path, self.place) if self.in_place else path
        if path == self.source.path:
            name += "" if options.split is None else f"\0{options.split}"
            name += f"\0\0{self.below}" if self.below else ""
        text = self._hashed if options is self.options else options.hashed
        hashed = f"{VERSION}\0{text}\0{name}"
        return os.path.join(self.place, hex_digest(hashed.encode(errors="surrogateescape")) + suffix)

    def _options_of(self, path: str) -> Options:
        """The options for reading the shard at a path: its rows have the values of its directories."""
        found = self.found.get(path)
        return (
            replace(self.options, partition=found.partition) if found is not None and found.partition else self.options
        )

    def _catalog_path(self, path: str) -> str:
        return self._index_path(path, CATALOG_SUFFIX)

    def _catalog_of(self, path: str, partition: str) -> str:
        """The path of the catalog of a shard that has, or had, the values of a partition."""
        return self._hashed_path(path, replace(self.options, partition=partition), CATALOG_SUFFIX)

    def _find(self) -> tuple[list[str], set[str]]:
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
        shards = [shard._replace(location=shard.location.absolute) for shard in found.shards]
        paths = [shard.path for shard in shards]
        self.found = dict(zip(paths, shards, strict=True))
        return shards_of_silent(paths, {Location.of(path).absolute.path for path in self.silent}, self.known.shards)

    def _look_at(self, paths: Sequence[str]) -> dict[str, Files | None]:
        """Look at each shard as `_files` does, at several of other stores at once."""
        is_far = any(shard.location.is_url for shard in self.found.values())
        threads = StorageOptions.configured().requests if is_far else 1
        # The first one alone: then it is known what lies beside all of them.
        found = [*map(self._files, paths[:1]), *run_at_once(self._files, paths[1:], threads)]
        return dict(zip(paths, found, strict=True))

    def _files(self, path: str) -> Files | None:
        """Fingerprints of a shard's files: empty if it does not exist, None if that is unknown."""
        found = self.found.get(path)
        try:
            shard = shard_at(path, self.look, None if found is None else found.container).with_lists(self.look)
        except NotFoundError:
            return {}
        except TouchfsError:
            return None
        self.containers[path] = shard.container
        return shard.files

    def _known(self, path: str, files: Files) -> KnownShard:
        """A shard with these files, of the container that was found."""
        if (container := self.containers.get(path)) is None:
            self.containers[path] = container = known_shard(path, files).container
        return KnownShard(path, container, files)

    def _take_current(self) -> None:
        """Take the shards of the dataset file that are as they were indexed, or do not answer."""
        for path in (*self.seen, *self.unseen):
            shard = self.known.shards.get(path)
            if (
                shard is not None
                and os.path.dirname(shard.catalog) == self.place
                and (path not in self.found or shard.partition == self.found[path].partition)
                and (path in self.unseen or self._is_current(shard, self.seen[path]))
                and not (self.full and shard.unmeasured)
                and has_catalog(shard, self.distrusted)
            ):
                files = self.seen.get(path)
                if files is not None and files == shard.files and files is not shard.files:
                    shard = replace(shard, files=dict(files))
                self.shards[path] = shard

    def _renewed(self, path: str, before: DatasetFile, files: Files) -> Files:
        """The fingerprints of a shard's files with what is known of them."""
        known = before.shards[path].files if path in before.shards else {}
        files = self._known(path, files).renewed(known).files
        self.has_notes |= files == known and files is not known
        return files

    def _is_current(self, shard: Shard, files: Files | None) -> bool:
        """True if the known facts are current. After a failed decompression they are, until the next attempt."""
        return files == shard.files or (self.options.decompress is Decompress.LATER and is_waiting(shard))

    def _add_silent(self) -> None:
        """Add shards that do not answer and were never indexed, each with a text instead of its samples."""
        for path in self.unseen - self.shards.keys():
            make_place(self.place)
            self._add_notice(path, silent_notice(path, self._index_path(path, "")))

    def _add_notice(self, path: str, notice: Notice) -> None:
        container = self._known(path, notice.facts.files).container
        self.shards[path] = shard_of(path, container, notice.path, notice.facts)

    def _forms(self, seen: Mapping[str, Files | None]) -> dict[str, list[ScratchFile] | None]:
        return find_prepared([self._known(path, files or {}) for path, files in seen.items()])

    def _decompress(self, seen: Mapping[str, Files | None]) -> None:
        """Decompress shards whose decompressed forms are missing, and add the forms of all of them, to be held.

        Adds the shards that cannot be decompressed, or not now.
        """
        prepared = self._forms(seen)
        # A shard whose decompression failed, or that is empty, is known from its catalog alone.
        missing = {
            path: seen[path] or {}
            for path, forms in prepared.items()
            if forms is None and (path not in self.shards or self.shards[path].size)
        }
        if missing:
            make_place(self.place)
        self.forms += [form for forms in prepared.values() if forms is not None for form in forms]
        for path, outcome in prepare_shards(
            missing, self.options.decompress, lambda path: self._index_path(path, ""), self.executor, self.preparing
        ):
            if isinstance(outcome, Notice):
                self._add_notice(path, outcome)
            else:
                self.forms += outcome

    def _missing(self, seen: Mapping[str, Files | None]) -> dict[str, Files | None]:
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
        """Copy the catalogs of a published index, and its index of keys if that is of the shards that are needed."""
        if self.force or self.in_place:
            return Fetched()
        missing = {
            path: (files, self._options_of(path).partition) for path, files in self._missing(seen).items() if files
        }
        # The keys of all shards may take more than the shards that are needed now.
        needs_keys = not self.below and seen.keys() == self.seen.keys()
        keys = self._index_path(self.source.path, KEYS_SUFFIX) if needs_keys else ""
        return fetch_index(self.source, self.options, missing, self.look, self._index_path, keys)

    def _index_missing(self, seen: Mapping[str, Files | None], fetched: Fetched, *, raises: bool) -> None:
        """Add all shards that are missing: with the catalogs that are at their paths by now, or with new ones."""
        tasks = [self._task(path, files, raises=raises) for path, files in self._missing(seen).items()]
        for indexed in index_shards(tasks, self.executor, self.progress):
            shard = self.shards[indexed.shard.path] = indexed.shard
            self.distrusted += [indexed.untrusted] if indexed.untrusted else []
            if indexed.is_new and self.indexed_now is not None:
                self.indexed_now(shard.path)
            if indexed.is_damaged and shard.path in fetched.catalogs:
                log.warning("%s: its published catalog is damaged: indexed again", shown(shard.path))
            elif indexed.is_damaged:
                self.damaged.append(shard.catalog)

    def _task(self, path: str, files: Files | None, *, raises: bool) -> IndexTask:
        return IndexTask(
            path,
            self._known(path, files or {}).container,
            self._catalog_path(path),
            self._options_of(path),
            self.force,
            self.full,
            files,
            raises,
            self.gives_way,
        )

    def _list(self, paths: Sequence[str]) -> list[ListedShard]:
        """The shards at these paths, with their names, and what the search for them says."""
        known = [self._known(path, self._listed_files(path)) for path in paths]
        located = (self.found[path].location if path in self.found else Location.of(path) for path in paths)
        names = unique_names([(each, shard.container) for each, shard in zip(located, known, strict=True)])
        listed = [self._listed_shard(shard, os.fsdecode(name)) for shard, name in zip(known, names, strict=True)]
        splits = in_order(shard.split for shard in listed)
        if len(splits) < 2:
            return listed
        # A shard of no split is beside the directories, and keeps its name.
        beside = [shard.name for shard in listed if not shard.split]
        shown = distinct([*beside, *(os.fsdecode(quote(split)) for split in splits)])[len(beside) :]
        directories = {"": "", **{split: f"{name}/" for split, name in zip(splits, shown, strict=True)}}
        return [replace(shard, directory=directories[shard.split]) for shard in listed]

    def _listed_below(self) -> list[ListedShard]:
        """The shards at the path `below`: one, or those of a split. Raises NotFoundError."""
        paths = [shard.path_in("shards") for shard in self.listed]
        listed = [shard for shard, path in zip(self.listed, paths, strict=True) if _is_below(path, self.below)]
        if listed:
            return listed
        if above := [path for path in paths if _is_below(self.below, path)]:
            problem = f"is not a shard, but below {above[0]}: `touchfs stat` is for files"
        else:
            place = bisect(ordered := sorted(paths), self.below)
            near = " and ".join(ordered[max(place - 1, 0) : place + 1]) or "nothing"
            problem = f"there is no such shard: next to it would be {near}"
        all_shards = shell_quote(f"{self.source.shown}:shards")
        raise NotFoundError(
            f"{problem}; `touchfs ls {all_shards}` shows what there is", path=f"{self.source.path}:{self.below}"
        )

    def _listed_files(self, path: str) -> Files:
        return self.shards[path].files if path in self.shards else self.seen[path] or {}

    def _listed_shard(self, known: KnownShard, name: str) -> ListedShard:
        """A shard with its name. What the search says of one below a silent directory is known already."""
        path, shard = known.path, self.shards.get(known.path)
        said = self.found.get(path) or shard
        return ListedShard(
            name=name,
            path=path,
            container=known.container,
            files=dict(known.files),
            catalog=self._catalog_path(path) if shard is None else shard.catalog,
            split="" if said is None else said.split,
            partition="" if said is None else said.partition,
        )

    def _named(self, position: int, shard: Shard | None = None) -> Shard:
        """The shard at a position, which is indexed, with its name, and what the search for it says."""
        listed = self.listed[position]
        return replace(
            shard or self.shards[listed.path],
            name=listed.name,
            split=listed.split,
            directory=listed.directory,
            partition=listed.partition,
        )

    def _save(self, shards: Sequence[Shard]) -> None:
        """Write the dataset file if it says anything else now, also of the times of unchanged files."""
        if self.below:
            return  # it is of all shards
        lasting = {shard.path: shard for shard in shards if not is_notice(shard)}
        file = DatasetFile(self.source.path, lasting, self.moved_from, self.options.split)
        if file != self.known or self.has_notes:
            with suppress(SourceError):  # the catalogs have the same facts
                save_dataset_file(self._dataset_file, file)

    def _assemble(self, shards: tuple[Shard, ...]) -> IndexedShards:
        """All shards, with their index of keys and their interleaved samples."""
        if not shards:  # else the place was made for their catalogs
            make_place(self.place)
        keys = open_keys(
            self._index_path(self.source.path, KEYS_SUFFIX),
            self.source.path,
            shards,
            self.executor,
            self.distrusted,
            self.damaged,
            force=self.force,
        )
        interleaved = open_interleaved(
            Dataset.of(self.source.path, shards, keys, self.options.limits, self.unseen, self.options.split),
            self._index_path,
            self.options,
            force=self.force,
            executor=self.executor,
            progress=self.finding_items,
            distrusted=self.distrusted,
            damaged=self.damaged,
            without=frozenset().union(*(fetched.without_items for fetched in self.fetched)),
        )
        return IndexedShards(shards, keys, interleaved, self.moved_from, self.damaged)

    def _warn(self) -> None:
        """Write to the log what of the index was damaged or not trusted, if it does not say so yet."""
        for path in self.damaged[self.warned :]:
            warn_of_damage(path)
        self.warned = len(self.damaged)
        if self.distrusted:
            first, *others = self.distrusted
            rest = f" (and {counted(len(others), 'other file')})" if others else ""
            log.warning("%s: ignored and rebuilt%s; --trust USER accepts what they write", first, rest)
            self.distrusted.clear()


def _is_below(path: str, directory: str) -> bool:
    return f"{path}/".startswith(f"{directory}/")
