"""The index of interleaved samples: which shards have some, and a catalog of their items for each.

These catalogs stand beside those of the shards, which do not change: they are made after them, and nothing but the view
`interleaved/` and its iterators reads them. A file for the whole dataset, like the dataset file, says what each shard
was found to be, so that opening a dataset looks into no shard again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from touchfs.catalog.catalog import Catalog, Facts
from touchfs.catalog.key_endings import NO_ENDINGS
from touchfs.core.errors import FormatError, SourceError, TouchfsError, UntrustedError, UnwritableError
from touchfs.core.names import hex_digest
from touchfs.core.progress import Progress
from touchfs.dataset import Dataset
from touchfs.dataset.shard import Shard
from touchfs.indexing.dataset_file import DatasetFile, load_dataset_file, save_dataset_file
from touchfs.indexing.far_shards import run_shards
from touchfs.indexing.index_task import has_catalog, warn_of_damage
from touchfs.indexing.preparing import CATALOG_SUFFIX, is_notice
from touchfs.shard.options import INTERLEAVED, Options

# In the names of all files of these indexes, behind the name of the shard's or dataset's own
ITEMS = ".items-"
_NO_KEYS = "samples of interleaved/ have no index of keys"


def open_interleaved(
    dataset: Dataset,
    index_path: Callable[[str, str], str],
    options: Options,
    *,
    force: bool,
    executor: Executor | None,
    progress: Progress,
    distrusted: list[str],
    damaged: list[str],
    without: Collection[str] = (),
) -> Dataset | None:
    """The shards of a dataset that have interleaved samples, with the catalogs of these; None if there are none.

    Makes the catalogs that are missing. `index_path(path, suffix)` is the path of an index file for a shard or the
    source. The shards at the paths `without` are known to have no such samples. `progress` is called with the bytes of
    shards that are done and their total. Why files of others are not used is added to `distrusted`, and catalogs that
    were damaged to `damaged`. Raises
    UntrustedError, UnwritableError or SourceError if the index cannot be used or written.
    """
    # A list of shards may name one twice.
    candidates = list({shard.path: shard for shard in dataset.shards if may_have_items(shard)}.values())
    if not candidates:
        return None
    catalogs = {shard.path: index_path(shard.path, items_suffix(options)) for shard in candidates}
    path = index_path(dataset.source, items_suffix(options).removesuffix(CATALOG_SUFFIX) + ".json")
    known = DatasetFile(dataset.source) if force else load_dataset_file(path, dataset.source, distrusted)
    found = {
        shard.path: kept
        for shard in candidates
        if (kept := known.shards.get(shard.path)) is not None
        and kept.files == shard.files
        and kept.catalog in ("", catalogs[shard.path])
        and (not kept.catalog or has_catalog(kept, distrusted))
    }
    found |= {
        shard.path: replace(shard, catalog="", catalog_size=0)
        for shard in candidates
        if shard.path in without and shard.path not in found
    }
    tasks = [
        (_ItemTask(shard, catalogs[shard.path], options, force), shard.path, shard.size)
        for shard in candidates
        if shard.path not in found and shard.path not in dataset.unseen
    ]
    for made, damaged_catalog in run_shards(_index_items, tasks, executor, progress):
        damaged += [damaged_catalog] if damaged_catalog else []
        if made is not None:
            found[made.path] = made
    if (file := DatasetFile(dataset.source, found)) != known:
        with suppress(SourceError):  # the shards are then looked at again
            save_dataset_file(path, file)
    shown = [
        replace(found[shard.path], name=shard.name)
        for shard in dataset.shards
        if shard.path in found and found[shard.path].catalog
    ]
    if not shown:
        return None
    again = partial(_index_again, options)
    return Dataset.of(
        dataset.source,
        shown,
        _NO_KEYS,
        dataset.limits,
        unseen=dataset.unseen,
        split=dataset.split,
        index_again=again,
    )


def items_suffix(options: Options) -> str:
    """The suffix of a shard's catalog of items that is made with these options."""
    return f"{ITEMS}{hex_digest(options.hashed_of_items.encode(errors='surrogateescape'))[:8]}{CATALOG_SUFFIX}"


def may_have_items(shard: Shard) -> bool:
    """True if a shard is of a kind that can have interleaved samples. Reads nothing."""
    return shard.may_have_items and shard.samples > 0 and not is_notice(shard)


@dataclass(frozen=True, slots=True)
class _ItemTask:
    shard: Shard
    catalog: str
    options: Options
    force: bool


def _index_items(task: _ItemTask) -> tuple[Shard | None, str]:
    """Index the items of a shard. A shard without interleaved samples has no catalog; None if it cannot be read now.

    The text is the path of the catalog if it was damaged, or "".
    """
    from touchfs.indexing.interleaved.catalog import make_item_catalog  # with what reads samples, as in `make_catalog`

    shard, facts, damaged = task.shard, None, ""
    try:
        facts = None if task.force else _known_facts(task)
    except FormatError:
        damaged = task.catalog
    try:
        facts = facts or make_item_catalog(shard, task.catalog, task.options)
    except (UntrustedError, UnwritableError):
        raise
    except TouchfsError:
        return None, damaged
    if facts is None:
        return replace(shard, catalog="", catalog_size=0), damaged
    return _with_facts(shard, task.catalog, facts), damaged


def _index_again(options: Options, shard: Shard) -> None:
    from touchfs.indexing.interleaved.catalog import make_item_catalog  # as in `_index_items`

    warn_of_damage(shard.catalog)
    make_item_catalog(shard, shard.catalog, replace(options, kind=INTERLEAVED))  # it is known to have some


def _known_facts(task: _ItemTask) -> Facts | None:
    """The facts of a catalog that exists, as after data and index were moved together; None if it is not current.

    One that is not trusted is made again, as if it were not there. Raises FormatError for one that is damaged.
    """
    try:
        facts = Catalog(task.catalog, task.shard.path).facts
    except FormatError:
        raise
    except TouchfsError:
        return None
    return facts if facts.files == task.shard.files else None


def _with_facts(shard: Shard, catalog: str, facts: Facts) -> Shard:
    return replace(
        shard,
        catalog=catalog,
        catalog_size=os.path.getsize(catalog),
        samples=facts.samples,
        segments=0,
        seconds=0.0,
        timed=0,
        unmeasured=0,
        measured=0,
        damaged=facts.damaged,
        report=facts.report,
        report_of_segments="",
        endings=NO_ENDINGS,
    )
