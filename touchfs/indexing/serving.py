"""The check that a dataset can be served at all: otherwise a mount and `touchfs info` fail.

A mount and the commands that list a dataset show its errors. For a program that only takes samples they are in the log.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from shlex import quote
from typing import Any

from touchfs.catalog.columns import as_array
from touchfs.catalog.table import DIRECTORY, NO_SAMPLE
from touchfs.core.errors import FormatError, TouchfsError
from touchfs.core.location import Location
from touchfs.core.urls import shown
from touchfs.dataset import Dataset, counted
from touchfs.indexing.preparing import is_waiting
from touchfs.indexing.report import reasons
from touchfs.posix.bounded_cache import BoundedCache
from touchfs.registry.containers import AUDIO_LIST, GZIP_LINES, LINES
from touchfs.source.scratch.store import Scratch

log = logging.getLogger(__name__)

# Of which datasets, with how much room, it was said.
_WARNED: BoundedCache[tuple[str, int], bool] = BoundedCache(256)


def why_unservable(dataset: Dataset, *, strict: bool = False) -> str:
    """Why nothing of a dataset can be served, or with `strict`, why not all of it; "" if it can.

    Shards that wait for their decompression count as served; so does an empty dataset.
    """
    broken = [position for position, shard in enumerate(dataset.shards) if shard.reports]
    if broken and not _serves_anything(dataset):
        return f"nothing of it can be served: {first_reason(dataset, broken[0])}"
    if broken and strict:
        return _not_strict(dataset, broken, "shard")
    if strict and (items := dataset.interleaved) is not None:
        # Items that another --on-error than `error` leaves out damage no sample.
        damaged = [position for position, shard in enumerate(items.shards) if shard.damaged]
        if damaged:
            return _not_strict(items, damaged, "interleaved shard")
    return ""


def warn_of_errors(dataset: Dataset, options: str = "") -> None:
    """Write a line to the log if shards of a dataset have errors. Their other samples are served.

    `options` are those of a command that reads the dataset as it is read here, with a space before each.
    """
    broken = sum(bool(shard.reports) for shard in dataset.shards)
    if broken:
        served = counted(dataset.samples - sum(shard.damaged for shard in dataset.shards), "sample")
        path = shown(dataset.source)
        shards = counted(len(dataset.shards), "shard")
        details = f"`touchfs info{options} {quote(path)}`"
        log.warning("%s: %d of %s with errors, %s served: see %s", path, broken, shards, served, details)


def warn_of_global_shuffle(samples: Any) -> None:
    """Write a line to the log, once, if `samples` at URLs are shuffled all over, and the scratch store holds only some.

    Of samples that are no dataset's nothing is known.
    """
    parts = getattr(samples, "parts", [samples])
    known = [part for part in parts if isinstance(getattr(part, "dataset", None), Dataset)]
    far = [part for part in known if any(Location.of(shard.path).is_url for shard in part.dataset.shards[:1])]
    if not far:
        return
    size = sum(part.dataset.size * len(part) // max(len(_whole(part)), 1) for part in far)
    with suppress(TouchfsError):  # without a scratch store, reading says so
        room = Scratch.configured().limit_now()
        source = shown(far[0].dataset.source)
        if size > room and (source, room) not in _WARNED:
            _WARNED.keep((source, room), True)
            window = f"{max(room // 2_000_000, 1)}M"
            log.warning(
                "%s: the scratch store holds %d of %d MB, so a global shuffle fetches most samples one by one; "
                '--window %s, or shuffle(seed, window="%s"), fetches the data about once, and --scratch-size has room',
                source,
                room // 10**6,
                size // 10**6,
                window,
                window,
            )


def _whole(samples: Any) -> Any:
    while hasattr(samples, "samples"):
        samples = samples.samples
    return samples


def check_strictly(dataset: Dataset) -> None:
    """Raise FormatError if any shard of a dataset has errors."""
    if why := why_unservable(dataset, strict=True):
        raise FormatError(why, path=dataset.source)


def _not_strict(dataset: Dataset, broken: Sequence[int], what: str) -> str:
    return f"{counted(len(broken), what)} with errors, and --strict allows none: {first_reason(dataset, broken[0])}"


def first_reason(dataset: Dataset, position: int) -> str:
    """The first problem in the reports of a shard; before it its number of damaged samples, if there are any."""
    shard = dataset.shards[position]
    lines = [line for report in shard.reports.values() for line in reasons(report)]
    reason = lines[0].replace(shard.path + "/", "").replace(shard.path + ": ", "")
    if shard.damaged:
        are = "are" if shard.samples > 1 else "is"
        return f"shard {shard.name}: {shard.damaged:,} of {counted(shard.samples, 'sample')} {are} damaged: {reason}"
    return f"shard {shard.name}: {reason}" + (f"; and {len(lines) - 1:,} more" if len(lines) > 1 else "")


def _serves_anything(dataset: Dataset) -> bool:
    if any(shard.samples > shard.damaged for shard in dataset.shards):
        return True  # known without opening a catalog
    shards = enumerate(dataset.shards)
    return any(is_waiting(shard) or (shard.damaged and _has_files(dataset, position)) for position, shard in shards)


def _has_files(dataset: Dataset, position: int) -> bool:
    """True if a shard has any file. Even damaged samples may have some: metainfo, or a line that is not JSON."""
    table = dataset.catalog(position).tables["shards"]
    is_file = (as_array(table.kind) != DIRECTORY) & (as_array(table.ordinal) != NO_SAMPLE)
    return bool(is_file.any())


def unshown_audio(dataset: Dataset) -> str:
    """What shows the audio that the lines of the first shard name, if it is a local list and no option names a root; ""
    if there is none such.
    """
    shard = next(iter(dataset.listed), None)
    if (
        shard is None
        or shard.known.container not in (LINES, GZIP_LINES, AUDIO_LIST)
        or dataset.limits.audio_root is not None
    ):
        return ""
    if not Location.of(shard.path).is_url and shard.path not in dataset.unseen:
        from touchfs.registry.directory.audio_lists import read_audio_list  # no other dataset needs it

        with suppress(TouchfsError):
            if found := read_audio_list(shard.path):
                return f"the audio that {shard.name} names is not shown: {found.advice}"
    return ""
