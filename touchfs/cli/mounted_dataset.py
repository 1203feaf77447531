"""The dataset of a mount. By default it is there at once, and its shards are indexed later."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace

from touchfs.cli.dataset_argument import open_indexed
from touchfs.cli.dataset_options import ReadOptions
from touchfs.core.location import Location
from touchfs.dataset import Dataset
from touchfs.indexing import list_dataset
from touchfs.posix.mounts import NETWORK_FILE_SYSTEMS, mounts, reached
from touchfs.shard.options import Decompress

WAIT, BACKGROUND, TOUCH = "wait", "background", "touch"
# To index so much takes a third of a second.
_MOMENT_SHARDS, _MOMENT_BYTES = 64, 1 << 25


def open_mounted(
    path: str, read_options: ReadOptions, patience_seconds: float, when: str | None, index_all: Callable[[], object]
) -> Dataset:
    """Open a dataset whose shards are indexed now, in the background, or when somebody looks into them. `index_all`
    starts the background. None is as it suits: what takes but a moment now, and data of other machines at a look.

    Where there is a background, large compressed shards are left to it, and show a text meanwhile.
    """
    if when == WAIT:
        return open_indexed(path, read_options, patience_seconds)
    is_far = _is_far(Location.of(path))
    if when == BACKGROUND or (when is None and not is_far):
        index_all()
        if read_options.options.decompress is Decompress.NOW:
            read_options = replace(read_options, options=replace(read_options.options, decompress=Decompress.LATER))
    dataset = list_dataset(
        path,
        options=read_options.options,
        in_place=read_options.in_place,
        in_memory=read_options.in_memory,
        patience_seconds=patience_seconds,
    )
    left = dataset.unindexed
    size = sum(file.size for shard in left for file in shard.files.values())
    is_moment = size <= _MOMENT_BYTES and len(left) <= _MOMENT_SHARDS and not is_far
    # Those that are left could not be read, or have changed: of a store, whose every shard may have, none is read now.
    has_all = not is_far and dataset.indexed_count == len(dataset.listed)
    if left and ((when is None and is_moment) or has_all):
        return open_indexed(path, read_options, patience_seconds)
    return dataset


def _is_far(location: Location) -> bool:
    """True if a source is at a URL, or on a file system of other machines."""
    found = None if location.is_url else reached(os.path.realpath(location.path), mounts())
    return location.is_url or (found is not None and found.kind in NETWORK_FILE_SYSTEMS)
