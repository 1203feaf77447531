"""Compressed shards of a dataset: which wait for their decompression, and what they show meanwhile.

A catalog has offsets into a decompressed form, but that form may be evicted from the scratch store. So each opening of
a dataset looks for the forms it needs, and keeps them from eviction as long as it lives; missing ones are made at once,
later if they are large, or never (`Options.decompress`). A shard without its decompressed form shows a text instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor
from contextlib import suppress
from typing import NamedTuple
from weakref import WeakKeyDictionary

from touchfs.catalog.catalog import Facts
from touchfs.core import jobs
from touchfs.core.control_characters import one_line
from touchfs.core.errors import NotFoundError, SourceError, TouchfsError
from touchfs.core.progress import Progress, reached, stage
from touchfs.dataset import Dataset
from touchfs.dataset.shard import Shard
from touchfs.indexing.catalogs import make_broken, make_notice
from touchfs.registry.open import KnownShard, known_shard, shard_at
from touchfs.shard.options import Decompress
from touchfs.source.decompressed import decompressed, find
from touchfs.source.fingerprint import Files
from touchfs.source.scratch.file import ScratchFile
from touchfs.source.scratch.store import Scratch

CATALOG_SUFFIX = ".arrow"
PREPARING_STEM = "PREPARING"
_PREPARING_SUFFIX, _REFUSED_SUFFIX, SILENT_SUFFIX = ".preparing.arrow", ".refused.arrow", ".silent.arrow"

# Compressed bytes that are decompressed at once where others have to wait: it takes about a second.
AT_ONCE_MAX = 1 << 26

_in_use: WeakKeyDictionary[Dataset, list[ScratchFile]] = WeakKeyDictionary()


class Notice(NamedTuple):
    """A catalog that takes the place of a shard's own, and its facts."""

    path: str
    facts: Facts


def find_prepared(shards: Iterable[KnownShard]) -> dict[str, list[ScratchFile] | None]:
    """The decompressed forms of each shard with compressed files by its path, or None if any is missing."""
    return {shard.path: _find(compressed) for shard in shards if (compressed := shard.compressed_files)}


def _find(files: Files) -> list[ScratchFile] | None:
    forms = [find(*each) for each in files.items()]
    existing = [form for form in forms if form is not None]
    return existing if len(existing) == len(forms) else None


def prepare_shards(
    shards: Mapping[str, Files],
    when: Decompress,
    place: Callable[[str], str],
    executor: Executor | None,
    progress: Progress,
) -> Iterator[tuple[str, list[ScratchFile] | Notice]]:
    """Decompress shards, or write for each a catalog with the reason why not, at its `place` plus a suffix.

    `shards` has the fingerprints of each shard by path. LATER is for what exceeds `AT_ONCE_MAX` in all. Yields each
    path with its decompressed forms or that catalog. `progress` is called with compressed bytes.
    """
    left = {Decompress.NOW: math.inf, Decompress.LATER: AT_ONCE_MAX, Decompress.NEVER: -1}[when]
    now = {}
    for path, files in shards.items():
        size = _size(known_shard(path, files).compressed_files)
        if size <= left:
            left -= size
            now[path] = files
        else:
            yield path, _notice(path, files, place(path), when)
    for (path, files), outcome in zip(now.items(), _prepare_all(now, executor, progress), strict=True):
        if isinstance(outcome, TouchfsError):
            catalog = place(path) + CATALOG_SUFFIX
            yield path, Notice(catalog, make_broken(catalog, outcome, files))
        else:
            yield path, outcome


def _prepare_all(
    shards: Mapping[str, Files], executor: Executor | None, progress: Progress
) -> Iterator[list[ScratchFile] | TouchfsError]:
    sized = [(path, _size(known_shard(path, files).compressed_files)) for path, files in shards.items()]
    if executor is None or len(shards) == 1:
        yield from jobs.run_sized(_prepare, sized, progress=progress)
        return
    errors = jobs.run_sized(_error_of, sized, executor, progress=progress)
    yield from (error or _prepare(path) for path, error in zip(shards, errors, strict=True))


def _prepare(path: str) -> list[ScratchFile] | TouchfsError:
    """Decompress the files of a shard, as they are now: its turn may come hours after the look at all shards."""
    forms = []
    try:
        files = shard_at(path).compressed_files
        total = _size(files)
        for file, fingerprint in files.items():
            with stage(fingerprint.size / max(total, 1)):
                forms.append(decompressed(file, fingerprint, reached))
    except TouchfsError as error:
        return error
    return forms


def _error_of(path: str) -> TouchfsError | None:
    """Decompress a shard in another process than the one that will use it; None if that succeeds."""
    outcome = _prepare(path)
    return outcome if isinstance(outcome, TouchfsError) else None


def _notice(path: str, files: Files, place: str, when: Decompress) -> Notice:
    store, shown = one_line(Scratch.configured().directory), one_line(path)
    if when is Decompress.NEVER:
        problem = f"is compressed, and its decompressed form is not in the scratch store {store}"
        text = f"This shard cannot be served.\n\n{shown}: {problem}.\n\nMount or index it without --no-decompress.\n"
        return Notice(place + _REFUSED_SUFFIX, make_notice(place + _REFUSED_SUFFIX, text, files))
    text = (
        f"{shown} ({_size(files):,} bytes) is being decompressed into the scratch store {store}.\n\n"
        "When that is done, and it is indexed, its samples are shown here. There is nothing to do.\n"
    )
    return Notice(place + _PREPARING_SUFFIX, make_notice(place + _PREPARING_SUFFIX, text, files, PREPARING_STEM))


def _size(files: Files) -> int:
    return sum(fingerprint.size for fingerprint in files.values())


def is_large(shard: KnownShard) -> bool:
    """True if nobody waits for the decompression of a shard where it can be done later."""
    return _size(shard.compressed_files) > AT_ONCE_MAX


def is_notice(shard: Shard) -> bool:
    """True if the catalog of a shard shows only a text in the place of its samples."""
    return shard.catalog.endswith((_PREPARING_SUFFIX, _REFUSED_SUFFIX, SILENT_SUFFIX))


def is_waiting(shard: Shard) -> bool:
    """True if a shard waits for its decompression, for the first time or after a failure that may be temporary."""
    if shard.catalog.endswith(_PREPARING_SUFFIX):
        return True
    if shard.catalog.endswith(SILENT_SUFFIX):
        return False
    if not shard.report or shard.files:
        return False
    with suppress(NotFoundError, SourceError):
        return bool(shard_at(shard.path).compressed_files)
    return False


def hold(dataset: Dataset, decompressed_forms: list[ScratchFile]) -> None:
    """Keep decompressed forms, and those that the list gets later, from eviction as long as the dataset lives in this
    process, or until `release`.
    """
    _in_use[dataset] = decompressed_forms


def hold_all(dataset: Dataset) -> None:
    """Like `hold`, for a dataset that another process opened: finds the decompressed forms again."""
    shards = [shard.known for shard in dataset.indexed_so_far if shard.size and shard.path not in dataset.unseen]
    hold(dataset, [form for forms in find_prepared(shards).values() for form in forms or ()])


def release(dataset: Dataset) -> None:
    """Allow the eviction of a dataset's decompressed forms."""
    _in_use.pop(dataset, None)
