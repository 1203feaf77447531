"""Open a dataset, and index the parts of it that are not indexed yet.

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
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import replace

from touchfs.dataset import Dataset
from touchfs.errors import NotFoundError, UntrustedError, UnwritableError, UsageError
from touchfs.indexing.in_memory import index_in_memory
from touchfs.indexing.opening import Opening
from touchfs.indexing.place import check_place, index_place
from touchfs.indexing.silent import silent_paths
from touchfs.posix.paths import absolute, check_url, is_url
from touchfs.progress import Progress
from touchfs.shard.find import candidates
from touchfs.shard.options import DEFAULT, Options
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
    opening = Opening(
        source=source,
        options=options,
        place=place,
        in_place=in_place,
        force=force,
        full=full,
        executor=executor,
        progress=progress,
        preparing=preparing,
        finding_items=finding_items,
        indexed_now=indexed_now,
        silent=silent,
        look=look,
    )
    try:
        if not in_memory:
            check_place(place, source)
            return opening.run()
    except (UntrustedError, UnwritableError) as error:
        if must_keep:
            raise
        log.warning("%s: the index is kept in memory", error)
    return replace(opening, place=index_in_memory(), in_place=False).run()
