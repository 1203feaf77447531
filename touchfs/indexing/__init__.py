"""Open a dataset, and index the parts of it that are not indexed yet.

Shards are indexed when somebody looks into them (`list_dataset`), or all at once (`open_dataset`).

Opening an indexed dataset costs a listing and a few stats a shard, and reading one small file, the *dataset file*. It
has, for each shard, the identities of its files when its catalog was made. No catalog is touched before something in
its shard is read. If a shard is new or has changed, its catalog is made first; `touchfs index` does nothing else. A
dataset file is only a summary: without it, catalogs are opened to see which shards they belong to.

Files of an index have checksums, which are compared before they are used. A damaged catalog is made again, whether it
is found by an opening or by a use.

A compressed shard is decompressed first (`touchfs.indexing.preparing`), unless its decompressed form exists already.

The index of keys, one file over all shards and made last, finds the samples of a key. Everything else works without it.

All these files are in the user's cache directory, named by a hash of the path of the shard or source and of the
options, or with `in_place` in `.touchfs-index/` beside the data, where paths are relative and everything may be moved
together.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial

from touchfs.core.errors import NotFoundError, UntrustedError, UnwritableError, UsageError
from touchfs.core.location import Location
from touchfs.core.progress import Progress, unshown
from touchfs.dataset import Dataset
from touchfs.indexing.in_memory import index_in_memory
from touchfs.indexing.opening import Opening
from touchfs.indexing.place import check_place, index_place
from touchfs.indexing.silent import look_below
from touchfs.registry.directory.members import list_directories, shared_directories
from touchfs.registry.find import candidates
from touchfs.shard.options import DEFAULT, Decompress, Options
from touchfs.source.data import Look, find_type
from touchfs.source.store import FileType

log = logging.getLogger(__name__)


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
    progress: Progress = unshown,
    preparing: Progress = unshown,
    finding_items: Progress = unshown,
    indexed_now: Callable[[str], None] | None = None,
    patience_seconds: float | None = None,
    below: str = "",
    gives_way: bool = False,
) -> Dataset:
    """Open a dataset, and index the shards that are not indexed yet, or all with `force`.

    With `below`, the path in the tree of a shard (`shards/NAME`) or of the shards of a split, it is the dataset of
    these alone, with the names that they have among all; no others are indexed. Raises NotFoundError for other paths.
    With `full`, recordings are read whose length no header has, also those of shards that are indexed without.
    `progress` is called with the bytes of shards that are indexed and their total; before that, `preparing` with the
    bytes of compressed shards that are decompressed and their total, and after it `finding_items` with those in which
    interleaved samples are looked for. `indexed_now` is called with the path of each shard that is indexed. Raises
    UsageError, NotFoundError or FormatError for the source as a whole, and SourceError if no index can be written;
    problems of one shard are in its `report`. With `in_memory` the index is made for this process and its forks. The
    same happens, with a line in the log, if we cannot write the index, or others can; with `must_keep` that is an
    error.

    With `patience_seconds` a shard that does not answer for this long is not waited for. It is served as it was when it
    was indexed; if it never was, it shows a text with the reason. With `gives_way`, who looks into a shard meanwhile
    does not wait for this process.
    """
    location = _checked(source, options)
    place, in_place = _place(location, in_place=in_place, in_memory=in_memory, must_keep=must_keep)
    look = Look()
    silent = _silent(location, options, patience_seconds, look)
    opening = Opening(
        source=location,
        options=options,
        place=place,
        in_place=in_place,
        look=look,
        must_keep=must_keep,
        force=force,
        full=full,
        executor=executor,
        progress=progress,
        preparing=preparing,
        finding_items=finding_items,
        indexed_now=indexed_now,
        silent=silent,
        below="" if below == "shards" else below,
        gives_way=gives_way,
    )
    return _indexed(opening.dataset())


def list_dataset(
    source: str,
    *,
    options: Options = DEFAULT,
    in_place: bool = False,
    in_memory: bool = False,
    progress: Progress = unshown,
    patience_seconds: float | None = None,
) -> Dataset:
    """Open a dataset as the list of its shards. Each is indexed when somebody looks into it.

    The arguments are those of `open_dataset`, and `progress` is called for all that takes long. Raises as
    `open_dataset`, but SourceError only when a shard is indexed.
    """
    location = _checked(source, options)
    place, in_place = _place(location, in_place=in_place, in_memory=in_memory, must_keep=False)
    look = Look()
    silent = _silent(location, options, patience_seconds, look)
    opening = Opening(
        source=location,
        options=options,
        place=place,
        in_place=in_place,
        look=look,
        silent=silent,
        progress=progress,
        preparing=progress,
        finding_items=progress,
    )
    # Where nothing is left for later, those that are not decompressed any more are when somebody looks into them, too.
    is_ready = opening.has_all and (options.decompress is not Decompress.NOW or opening.has_forms)
    dataset = opening.dataset()
    return _indexed(dataset) if is_ready and not dataset.unindexed else dataset


def _silent(source: Location, options: Options, patience_seconds: float | None, look: Look) -> frozenset[str]:
    if patience_seconds is None:
        return frozenset()
    from touchfs.registry.silent import silent_paths  # which `ls` has no use for

    paths = candidates(source, look, locations=options.limits.locations)
    silent = silent_paths(shared_directories(paths), patience_seconds, look.stat)
    list_directories(paths, look, silent)  # which may take long, and answers for all paths in them
    below = {path for path in paths if os.path.dirname(path) in silent}
    asked = (path for path in paths if path not in below)
    return silent | below | silent_paths(asked, patience_seconds, partial(look_below, store=look))


def _indexed(dataset: Dataset) -> Dataset:
    dataset.indexed  # noqa: B018  all of it now
    return dataset


def _checked(source: str, options: Options) -> Location:
    if not source:
        raise UsageError("the path of the dataset is empty: is a variable unset?")
    location = Location.parse(source).absolute
    root = options.limits.audio_root
    # Most stores have no directories that could be looked for.
    if root is not None and not Location.parse(root).is_url and find_type(root) is not FileType.DIRECTORY:
        raise NotFoundError("no such directory of audio", path=root)
    return location


def _place(source: Location, *, in_place: bool, in_memory: bool, must_keep: bool) -> tuple[str, bool]:
    """The directory of the index, and whether it lies beside the data."""
    place = index_place(source, in_place=in_place)
    if not in_memory:
        try:
            check_place(place, source.path)
            return place, in_place
        except (UntrustedError, UnwritableError) as error:
            if must_keep:
                raise
            log.warning("%s: the index is kept in memory", error)
    return index_in_memory(), False
