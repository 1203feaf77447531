"""The files of a Lance dataset, by their names relative to its directory.

A dataset is read in its latest version, and the manifest of this version stands for it: data files never change. They
belong to the shard because blobs are ranges of them. Manifests of earlier versions do not.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress

from touchfs.core.errors import FormatError, NotFoundError
from touchfs.format.cache_metadata import METADATA_FILE
from touchfs.shard.single import fingerprint_of
from touchfs.source.data import DATA
from touchfs.source.fingerprint import Files, Fingerprint
from touchfs.source.store import Store, StoredEntry, StoredFile
from touchfs.tables.lance.versions import VERSIONS, manifest_version, manifests

SUFFIX = ".lance"
DATA_DIRECTORY, BLOB_SUFFIX = "data", ".blob"
# Each blob that has a file of its own is one more file to look at. Those beyond are read through Lance.
BLOB_FILES_MAX = 10_000


def is_lance_dataset(path: str, entries: Iterable[StoredEntry]) -> bool:
    """True if the directory at a path, with these entries, is a Lance dataset, or is named like one."""
    return path.rstrip("/").endswith(SUFFIX) or any(entry.name == VERSIONS and entry.is_dir() for entry in entries)


def is_lance(files: Files) -> bool:
    return any(name.startswith(VERSIONS + "/") for name in files)


def fingerprints(path: str, store: Store = DATA) -> dict[str, Fingerprint]:
    """Fingerprints of the manifest of the latest version, of data files and of `_metadata.json`, without a read.

    Raises NotFoundError if there is no manifest, and SourceError.
    """
    versions = manifests(path, store)
    if not versions:
        raise NotFoundError("is no Lance dataset: it has no version", path=path)
    names = [f"{VERSIONS}/{versions[max(versions)]}", METADATA_FILE, *sorted(_data_files(path, store))]
    files = {}
    for name in names:
        with suppress(NotFoundError):  # no cache of ours, or removed since it was listed
            files[name] = store.stat(os.path.join(path, name)).fingerprint
    return files


def _data_files(path: str, store: Store) -> Iterator[str]:
    entries = list(_entries(os.path.join(path, DATA_DIRECTORY), store))
    yield from (f"{DATA_DIRECTORY}/{entry.name}" for entry in entries if entry.name.endswith(SUFFIX))
    blobs = 0
    for directory in sorted(entry.name for entry in entries if entry.is_dir()):
        names = (entry.name for entry in _entries(os.path.join(path, DATA_DIRECTORY, directory), store))
        for name in sorted(name for name in names if name.endswith(BLOB_SUFFIX)):
            blobs += 1
            if blobs > BLOB_FILES_MAX:
                return
            yield f"{DATA_DIRECTORY}/{directory}/{name}"


def _entries(directory: str, store: Store) -> Iterable[StoredEntry]:
    try:
        return store.list(directory)
    except NotFoundError:  # a dataset without rows has no data
        return []


def open_source(path: str, name: str, files: Files) -> StoredFile:
    """Open a file of the dataset at `path`, which neither its name nor links leave. Raises FormatError."""
    return DATA.open_beneath(path, name, fingerprint_of(path, name, files))


def manifest_of(path: str, files: Files) -> tuple[str, int]:
    """The name of the manifest of the dataset at `path`, and its version. Raises FormatError."""
    for name in files:
        directory, slash, base = name.rpartition("/")
        version = manifest_version(base)
        if slash and directory == VERSIONS and version is not None:
            return name, version
    raise FormatError("is no Lance dataset: it has no version", path=path)


def size_of(files: Files) -> int:
    return sum(fingerprint.size for name, fingerprint in files.items() if name.startswith(DATA_DIRECTORY + "/"))
