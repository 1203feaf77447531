"""Index a dataset with overlays: each shard is joined when it is indexed (`touchfs.indexing.overlays.join`).

The catalogs with the files of overlays stand beside those of the shards, which do not change. Their names have a hash
of the contents of the overlays: other overlays are other catalogs. As for interleaved samples, a file for the whole
dataset says what is known of the shards that are joined.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from typing import NamedTuple

from touchfs.catalog.catalog import Catalog, Facts
from touchfs.core import jobs
from touchfs.core.control_characters import quote_name
from touchfs.core.errors import FormatError, SourceError, TouchfsError, UntrustedError, UnwritableError
from touchfs.dataset import IndexedShards, Indexer, counted
from touchfs.dataset.shard import OVERLAID, ListedShard, Shard
from touchfs.indexing.dataset_file import DatasetFile, load_dataset_file, save_dataset_file
from touchfs.indexing.in_memory import index_in_memory
from touchfs.indexing.index_task import has_catalog, index_again, warn_of_damage
from touchfs.indexing.overlays.join import Joined, base_of, join_catalog
from touchfs.indexing.overlays.named import NamedOverlay, find_overlays, overlays_hash, overlays_of
from touchfs.indexing.overlays.sides import Sides, joined_rows, sides_of
from touchfs.indexing.preparing import CATALOG_SUFFIX, is_notice
from touchfs.posix.atomic import turn
from touchfs.shard.options import Options
from touchfs.source.data import Look

log = logging.getLogger(__name__)

_LISTED = [each.name for each in fields(ListedShard)]


class _JoinedShard(NamedTuple):
    """A shard with the catalog that has the files of overlays. `joined` is empty if that was there before."""

    shard: Shard
    joined: list[Joined]


@dataclass(frozen=True, slots=True)
class _JoinTask:
    shard: Shard
    catalog: str
    overlays: tuple[NamedOverlay, ...]
    options: Options
    force: bool


class OverlaidIndexer:
    """The indexer of a dataset with overlays, around its `own` one, which has found the shards that are `own_listed`.

    `overlays` are those of all shards, and `beside` has those of one shard each, by its path. `index_path` is the path
    of an index file with a suffix for the source. Raises what opening an overlay raises.
    """

    def __init__(
        self,
        own: Indexer,
        own_listed: Sequence[ListedShard],
        source: str,
        overlays: tuple[NamedOverlay, ...],
        beside: Mapping[str, NamedOverlay],
        index_path: Callable[[str, str], str],
        options: Options,
        *,
        force: bool,
        executor: Executor | None,
        distrusted: list[str],
    ) -> None:
        self._own = own
        self._options = options
        self._executor = executor
        self._force = force
        self._distrusted = distrusted
        self._overlays = overlays
        self._beside = beside
        self._path = index_path(source, f"{OVERLAID}{overlays_hash(overlays)}.json")
        before = load_dataset_file(self._path, source, distrusted)
        self._known = DatasetFile(source) if force else before
        if not self._known.shards:  # what is wrong with an overlay is said before somebody looks into a shard
            for overlay in overlays:
                overlay.check()
        self.listed = [self._listed_shard(shard) for shard in own_listed]

    def shard(self, position: int) -> Shard:
        """See `Indexer.shard`. Raises what opening an overlay raises."""
        shard = self._own.shard(position)
        if not self._is_joined(shard):
            return shard
        made = _joined(self._task(shard))
        for overlay, joined in zip(self._of(shard), made.joined, strict=False):  # none, if it was joined before
            _tell_left_out(overlay, joined)
        return made.shard

    def headers(self, position: int) -> Shard:
        """See `Indexer.headers`: the files of overlays are known when the shard is joined."""
        return self.shard(position) if self._of(self.listed[position]) else self._own.headers(position)

    def has(self, position: int) -> bool:
        return os.path.lexists(self.listed[position].catalog) and self._own.has(position)

    def has_headers(self, position: int) -> bool:
        return self.has(position) if self._of(self.listed[position]) else self._own.has_headers(position)

    def all(self) -> IndexedShards:
        """See `Indexer.all`. Says in the log which rows and samples have no other side, if that is not known yet."""
        indexed = self._own.all()
        known = {shard.path: self._known_shard(shard) for shard in indexed.shards if self._is_joined(shard)}
        missing = {shard.path: shard for shard in indexed.shards if known.get(shard.path, shard) is None}
        found = {path: shard for path, shard in known.items() if shard is not None}
        made: dict[str, list[Joined]] = {}
        for shard, joined in jobs.run(_joined, map(self._task, missing.values()), self._executor):
            found[shard.path] = shard
            made[shard.path] = joined
        shards = tuple(self._named(found.get(shard.path, shard), shard) for shard in indexed.shards)
        if missing:
            self._tell(found, made)
        file = DatasetFile(self._known.source, found, split=self._options.split)
        if file.shards != self._known.shards:
            with suppress(SourceError):  # the catalogs have the same facts
                save_dataset_file(self._path, file)
        return indexed._replace(shards=shards)

    def _tell(self, shards: Mapping[str, Shard], made: Mapping[str, list[Joined]]) -> None:
        """Write to the log what has no other side, and which files are left out."""
        for number, overlay in enumerate(self._overlays):
            found = (
                joined[number].rows
                if (joined := made.get(path))
                else joined_rows(Catalog(shard.catalog, path), overlay.extension)
                for path, shard in shards.items()
            )
            samples = sum(shard.samples for shard in shards.values())
            _tell_sides(overlay, sides_of(overlay, found, samples), samples)
        left_out: dict[str, tuple[NamedOverlay, Joined]] = {}  # those beside their shards are told together
        for path, each in made.items():
            for overlay, here in zip(self._of(shards[path]), each, strict=False):
                first, before = left_out.setdefault(overlay.extension, (overlay, here._replace(left_out=0)))
                example = before.example or here.example
                left_out[overlay.extension] = first, Joined(before.rows, before.left_out + here.left_out, example)
        for overlay, everywhere in left_out.values():
            _tell_left_out(overlay, everywhere)

    def _task(self, shard: Shard) -> _JoinTask:
        return _JoinTask(shard, self._catalog_of(shard), self._of(shard), self._options, self._force)

    def _of(self, shard: ListedShard) -> tuple[NamedOverlay, ...]:
        beside = self._beside.get(shard.path)
        return self._overlays if beside is None else (*self._overlays, beside)

    def _is_joined(self, shard: Shard) -> bool:
        return bool(self._of(shard)) and not is_notice(shard)

    def _catalog_of(self, shard: ListedShard) -> str:
        own = shard.catalog.removesuffix(CATALOG_SUFFIX)
        return f"{own}{OVERLAID}{overlays_hash(self._of(shard))}{CATALOG_SUFFIX}"

    def _listed_shard(self, shard: ListedShard) -> ListedShard:
        if not self._of(shard) or (isinstance(shard, Shard) and is_notice(shard)):
            return shard
        if isinstance(shard, Shard) and (known := self._known_shard(shard)) is not None:
            return known
        facts = {name: getattr(shard, name) for name in _LISTED}
        return ListedShard(**facts | {"catalog": self._catalog_of(shard)})

    def _known_shard(self, shard: Shard) -> Shard | None:
        """The shard as it was joined before; None if it has changed since."""
        known = self._known.shards.get(shard.path)
        if known is None or known.catalog != self._catalog_of(shard):
            return None
        own = self._named(replace(known, catalog=shard.catalog, catalog_size=shard.catalog_size), shard)
        is_same = replace(own, endings=shard.endings, files=shard.files) == shard and known.files == shard.files
        return self._named(known, shard) if is_same and has_catalog(known, self._distrusted) else None

    def _named(self, shard: Shard, own: Shard) -> Shard:
        return replace(shard, name=own.name, split=own.split, directory=own.directory, partition=own.partition)


def join_again(options: Options, shard: Shard) -> None:
    """Make the catalog of a joined shard again, which was found to be damaged when the shard was used."""
    base = shard.base
    if base.catalog == shard.catalog:
        index_again(options, shard)
        return
    try:
        Catalog(base.catalog, base.path)
    except FormatError:
        index_again(options, base)
    warn_of_damage(shard.catalog)
    overlays, beside = find_overlays(options.overlays), overlays_of([shard], options, Look())
    join_catalog(Catalog(base.catalog, base.path), shard.catalog, (*overlays, *beside.values()))


def _joined(task: _JoinTask) -> _JoinedShard:
    """Join a shard, unless that is done. What cannot be written here is kept in memory."""
    try:
        return _join(task, task.catalog)
    except (UntrustedError, UnwritableError) as error:
        log.warning("%s: the index is kept in memory", error)
        return _join(task, os.path.join(index_in_memory(), os.path.basename(task.catalog)))


def _join(task: _JoinTask, path: str) -> _JoinedShard:
    shard, joined = task.shard, list[Joined]()
    with turn(path):
        try:
            base = Catalog(shard.catalog, shard.path)
        except FormatError:
            index_again(task.options, shard)
            base = Catalog(shard.catalog, shard.path)
        facts = None if task.force else _current(path, base.facts, shard)
        if facts is None:
            try:
                facts, joined = join_catalog(base, path, task.overlays)
            except FormatError as error:
                named = [overlay for overlay in task.overlays if not overlay.is_beside]
                if len(named) == len(task.overlays):
                    raise error.at(shard.path) from error
                log.warning("%s: not joined with what is beside it", error.at(shard.path))
                facts, joined = join_catalog(base, path, named)
    size = os.path.getsize(path)
    return _JoinedShard(replace(shard, catalog=path, catalog_size=size, endings=facts.endings), joined)


def _current(path: str, base: Facts, shard: Shard) -> Facts | None:
    """The facts of a joined catalog; None if it is missing, damaged, not trusted, or of another one."""
    try:
        facts = Catalog(path, shard.path).facts
    except TouchfsError:
        return None
    return facts if facts == base or facts.base == base_of(base) else None


def _tell_sides(overlay: NamedOverlay, sides: Sides, samples: int) -> None:
    rows, (matched, surplus, missing) = overlay.open().rows, sides
    if columns := overlay.open().columns.left_out:
        log.warning("%s: columns of bytes are left out: %s", overlay.shown, ", ".join(map(quote_name, columns)))
    if not rows:
        log.warning("%s: has no rows", overlay.shown)
    elif not matched and samples:
        log.warning("%s: none of its %s keys is that of a sample", overlay.shown, f"{rows:,}")
    else:
        if surplus:
            log.warning("%s: %s of no sample", overlay.shown, _are(surplus, "row"))
        if missing:
            log.warning("%s: %s of %s have no row", overlay.shown, f"{missing:,}", counted(samples, "sample"))


def _tell_left_out(overlay: NamedOverlay, joined: Joined) -> None:
    if joined.left_out:
        files = _are(joined.left_out, "file")
        log.warning("%s: %s left out, as shards have files of these names: *%s", overlay.shown, files, joined.example)


def _are(count: int, what: str) -> str:
    return f"{count:,} {what}s are" if count != 1 else f"1 {what} is"
