"""Indexes of data that were moved: taken over where there is none for the path that they are at now.

The dataset files of an index directory name all shards that were indexed, with the size, time and inode of each file. A
move within a file system keeps all of these. Where they fit, and pieces of the files do (`touchfs.catalog.ends`), the
catalog gets a second name, that of the new path, and is then found there. So a look through the dataset files, and no
read of the data, replaces the indexing. Where nothing was ever moved, the look is small beside it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

from touchfs.catalog.catalog import Catalog
from touchfs.catalog.ends import digest_ends
from touchfs.errors import TouchfsError
from touchfs.indexing.dataset_file import DATASET_SUFFIX, load_dataset_file
from touchfs.posix.trust import atomic_own_file
from touchfs.source.local import FileIdentity

Files = Mapping[str, FileIdentity]


def take_over(directory: str, wanted: Mapping[str, Files], name: Callable[[str], str]) -> dict[str, str]:
    """Give shards at new paths the catalogs that they had at old ones. Returns by new path the old source.

    `wanted` has the files of each shard for which there is no catalog in the directory; `name` says what the catalog of
    a path is called, which also depends on the options. A catalog with a report names the old path, so it stays.
    """
    left = {_key(files): path for path, files in wanted.items() if files}
    moved: dict[str, str] = {}
    for dataset_file in _newest_first(directory) if left else ():
        known = load_dataset_file(dataset_file, directory, [])
        for shard in known.shards.values():
            path = left.get(_key(shard.files))
            is_like = shard.catalog == name(shard.path) and not shard.report
            if path is None or path == shard.path or not is_like or not _fits(path, shard.files, shard.catalog):
                continue
            _link(shard.catalog, name(path))
            moved[path] = known.source
            del left[_key(shard.files)]
        if not left:
            break
    return moved


def _key(files: Files) -> tuple[tuple[str, FileIdentity], ...]:
    return tuple(sorted(files.items(), key=lambda item: item[0]))


def _fits(path: str, files: Files, catalog: str) -> bool:
    try:
        digest = Catalog(catalog, path).facts.digest
        return bool(digest) and digest == digest_ends(path, files)
    except TouchfsError:
        return False


def _link(catalog: str, name: str) -> None:
    """A name of its own, so that it outlives an index of other data at the old path. It is copied where links fail."""
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
