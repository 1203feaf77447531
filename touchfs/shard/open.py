"""Open the shard at a path, and say what is known of it by its path and fingerprints.

`touchfs.shard.find` finds the shards of a dataset; from there on a shard is its path. `touchfs.shard.containers` has a
row for each kind; a directory is a Lance dataset or TouchNet's, also if the path does not exist.
"""

from __future__ import annotations

import os
from functools import partial

from touchfs.errors import NotFoundError, SourceError
from touchfs.format.idx import INDEX_SUFFIX
from touchfs.posix.paths import beside, shown_name
from touchfs.shard import single
from touchfs.shard.containers import DIRECTORY, KALDI, LANCE, SHAR, Container, ShardReader, container_named, plain_stem
from touchfs.shard.options import DEFAULT, Options
from touchfs.shard.shar import files as shar_files
from touchfs.shard.tables import lance_files
from touchfs.source import data
from touchfs.source.data import DATA
from touchfs.source.fingerprint import Files, Fingerprint
from touchfs.source.store import FileType, Store, StoredFile


def open_shard(path: str, options: Options = DEFAULT, files: Files | None = None) -> ShardReader:
    """Open the shard at a path whose fingerprints are `files`; by default, they are looked up now.

    Raises FormatError, ChangedError, NotFoundError or SourceError.
    """
    files = fingerprints(path) if files is None else files
    container = _container(path, files) if files else DIRECTORY  # only a directory can have none
    return container.open(path, options, single.without_lists(files))


def fingerprints(path: str, store: Store = DATA) -> dict[str, Fingerprint]:
    """Fingerprints of a shard's files by name, without reading them. Raises NotFoundError or SourceError."""
    container = SHAR if shar_files.is_shard(path, store) else container_named(path) or DIRECTORY
    try:
        if store.stat(path).type is FileType.DIRECTORY:
            container = LANCE if lance_files.is_lance_dataset(path, store.list(path)) else DIRECTORY
        elif container in (DIRECTORY, LANCE):
            raise SourceError("is not a directory", path=path)
        return container.fingerprints(path, store)
    except NotFoundError as error:
        raise NotFoundError("no such shard", path=path) from error


def fingerprints_with_lists(path: str, store: Store = DATA) -> dict[str, Fingerprint]:
    """Fingerprints of a shard's files and of Kaldi's lists beside it, which may have segments. Raises as above."""
    files = fingerprints(path, store)
    is_beside = os.path.basename(path) in files and not path.endswith(INDEX_SUFFIX)
    return files | (single.list_fingerprints(path, store) if is_beside else {})


def with_samples(path: str, files: Files) -> dict[str, Fingerprint]:
    """The fingerprints of a shard's files, those of local ones with samples, for which they are read."""
    paths = file_paths(path, files)
    return {name: data.with_sample(*each) for name, each in zip(files, paths.items(), strict=True)}


def renewed(path: str, known: Files, files: Files) -> Files:
    """The fingerprints of a shard's files as they are now, with what is `known` of them (`Fingerprint.renewed`).

    `known` itself if nothing has changed, not even a ctime.
    """
    if files == known and all(found.ctime_ns == known[name].ctime_ns for name, found in files.items()):
        return known
    paths = file_paths(path, files)
    return {
        name: data.renewed(place, known.get(name), found)
        for name, (place, found) in zip(files, paths.items(), strict=True)
    }


# The functions below know a shard by its path and fingerprints, and do not ask its store, which may not answer.


def file_paths(path: str, files: Files) -> dict[str, Fingerprint]:
    """The fingerprints of a shard's files by path."""
    is_directory = _container(path, files) in (DIRECTORY, LANCE)
    place = partial(os.path.join, path) if is_directory else partial(beside, path)
    return {place(name): fingerprint for name, fingerprint in files.items()}


def open_source(path: str, name: str, files: Files) -> StoredFile:
    """The file that a field of a shard names as its source."""
    return _container(path, files).open_source(path, name, files)


def compressed_files(path: str, files: Files) -> dict[str, Fingerprint]:
    """Fingerprints by path of the shard's files that must be decompressed into the scratch store before it opens."""
    return _container(path, files).compressed_files(path, files)


def keys_are_paths(path: str, files: Files) -> bool:
    """True if the keys of a shard are paths of an archive, where `./a` is `a`."""
    return _container(path, files).keys_are_paths


def is_table(path: str, files: Files) -> bool:
    """True if a shard is a table, whose samples are rows."""
    return _container(path, files).column_types is not None


def column_types(path: str, files: Files) -> dict[str, str]:
    """The types of the columns of a table by their names; empty for other shards. Raises the errors of its reader."""
    read = _container(path, files).column_types
    return {} if read is None else read(path, files)


def kind_name(path: str, files: Files) -> str:
    """The name of the container format of a shard."""
    return _container(path, files).name


def shard_name(path: str, files: Files) -> str:
    """The name of a shard: the last component of its path, without the suffix of its container format; of a file that
    stands for its directory, that of the directory.
    """
    if _container(path, files) is KALDI:
        path = os.path.dirname(path)
    return shown_name(path) if _container(path, files) is DIRECTORY else plain_stem(path)


def _container(path: str, files: Files) -> Container:
    """The container of a shard with these files; by its name, if it has none, because it is missing."""
    name, files = os.path.basename(path), single.without_lists(files)
    if files and name not in files:  # the names in a directory, not its own
        return LANCE if lance_files.is_lance(files) else DIRECTORY
    # Cuts without a number are a Shar only with fields.
    is_shar = shar_files.is_cuts(name) and (shar_files.shar_number(name) or len(files) > 1)
    return SHAR if is_shar else container_named(path) or DIRECTORY
