"""Indexes of data that were moved: reused if there is none for the new path.

The dataset files of an index directory list all indexed shards, with the size, time and inode of each file. A move
within a file system keeps all of these. If they match, and the samples of the files (`touchfs.source.fingerprint`), the
catalog gets a second name, that of the new path, where it is found from then on; so do its checksums. So reading the
dataset files, and none of the data, replaces the indexing. If nothing was moved, the cost is small compared with the
indexing.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

from touchfs.indexing.dataset_file import DATASET_SUFFIX, load_dataset_file
from touchfs.posix.trust import atomic_own_file
from touchfs.registry.open import known_shard
from touchfs.source.fingerprint import Files, Fingerprint

_CHECKSUMS_SUFFIX = ".crc32c"
CatalogName = Callable[[str, str], str]


def checksums_of(catalog: str) -> str:
    """The path of the checksums that belong to the catalog at a path."""
    return os.path.splitext(catalog)[0] + _CHECKSUMS_SUFFIX


def take_over(directory: str, shards: Mapping[str, tuple[Files, str]], name: CatalogName) -> dict[str, str]:
    """Give shards at new paths their catalogs from old paths. Returns the old source by new path.

    `shards` has the files and the partition of each shard without a catalog in the directory; `name` returns the path
    of the catalog for a path and a partition, which also depends on the options. A catalog with a report contains the
    old path, so it is not reused.
    """
    left = {_key(files, partition): path for path, (files, partition) in shards.items() if files}
    moved: dict[str, str] = {}
    for dataset_file in _newest_first(directory) if left else ():
        known = load_dataset_file(dataset_file, directory, [])
        for shard in known.shards.values():
            key = _key(shard.files, shard.partition)
            path = left.get(key)
            is_like = shard.catalog == name(shard.path, shard.partition) and not shard.reports
            if path is None or path == shard.path or not is_like or not _fits(path, shard.files, shards[path][0]):
                continue
            catalog = name(path, shard.partition)
            _link(shard.catalog, catalog)
            with suppress(FileNotFoundError):
                _link(checksums_of(shard.catalog), checksums_of(catalog))
            moved[path] = known.source
            del left[key]
        if not left:
            break
    return moved


def _key(files: Files, partition: str) -> tuple[str, tuple[tuple[str, Fingerprint], ...]]:
    return partition, tuple(sorted(files.items(), key=lambda item: item[0]))


def _fits(path: str, known: Files, files: Files) -> bool:
    """True if the files of a shard are those that are `known`. Inodes are used again, and times can be set."""
    found = known_shard(path, files).with_samples().files
    return all(file.sample is not None and file.sample == known[name].sample for name, file in found.items())


def _link(catalog: str, name: str) -> None:
    """Link a catalog to another name, so that it survives an index of other data at the old path.

    Copies if links fail.
    """
    try:
        os.link(catalog, name)
    except OSError:
        with open(catalog, "rb") as source, atomic_own_file(name) as target:
            shutil.copyfileobj(source, target)


def _newest_first(directory: str) -> Iterable[str]:
    paths = []
    with suppress(OSError), os.scandir(directory) as entries:
        for entry in entries:
            if entry.name.endswith(DATASET_SUFFIX):
                with suppress(OSError):
                    paths.append((entry.stat(follow_symlinks=False).st_mtime_ns, entry.path))
    return [path for _, path in sorted(paths, reverse=True)]
