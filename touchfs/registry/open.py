"""Shards as they are known: a path, its container, and the fingerprints of its files.

`touchfs.registry.find` finds the shards of a dataset and the container of each, which goes with it from there on. Who
has only a path asks `shard_at`, and with fingerprints `known_shard`. A directory is a Lance dataset or TouchNet's, even
if the path does not exist.
"""

from __future__ import annotations

import os
from functools import partial
from typing import NamedTuple

from touchfs.containers.shar import files as shar_files
from touchfs.core.errors import NotFoundError, SourceError
from touchfs.core.location import Location, beside
from touchfs.registry.containers import (
    DIRECTORY,
    KALDI,
    LANCE,
    MEGATRON,
    SHAR,
    TAR,
    Container,
    container_named,
    plain_stem,
)
from touchfs.shard import single
from touchfs.shard.options import DEFAULT, Options
from touchfs.shard.sample import ShardReader
from touchfs.source import data
from touchfs.source.data import DATA
from touchfs.source.fingerprint import Files, Fingerprint
from touchfs.source.store import FileType, Store, StoredFile
from touchfs.tables.shards import lance_files


class KnownShard(NamedTuple):
    """A shard with its container and the fingerprints of its files by name.

    Nothing here asks the path's store, which may not answer, but what says so.
    """

    path: str
    container: Container
    files: Files

    @property
    def file_paths(self) -> dict[str, Fingerprint]:
        """The fingerprints of its files by path."""
        is_directory = self.container in (DIRECTORY, LANCE)
        place = partial(os.path.join, self.path) if is_directory else partial(beside, self.path)
        return {place(name): fingerprint for name, fingerprint in self.files.items()}

    @property
    def compressed_files(self) -> dict[str, Fingerprint]:
        """Fingerprints by path of its files that must be decompressed into the scratch store before it opens."""
        return self.container.compressed_files(self.path, self.files)

    @property
    def column_types(self) -> dict[str, str]:
        """The types of a table's columns by their names; empty for other shards. Raises the errors of its reader."""
        read = self.container.column_types
        return {} if read is None else read(self.path, self.files)

    @property
    def is_table(self) -> bool:
        """True if it is a table, whose samples are rows."""
        return self.container.column_types is not None

    def open(self, options: Options = DEFAULT) -> ShardReader:
        """Open it. Raises FormatError, ChangedError, NotFoundError or SourceError."""
        container = self.container if self.files else DIRECTORY  # only a directory can have none
        return container.open(self.path, options, single.without_lists(self.files))

    def open_to_index(self, options: Options) -> ShardReader:
        """Like `open`, but a tar takes its members from an index of another tool, if one beside it fits."""
        if self.container is not TAR or not self.files:
            return self.open(options)
        from touchfs.containers.tar.reader import TarShard  # as the functions of a container's row

        return TarShard(self.path, options, single.without_lists(self.files), adopt=True)

    def open_source(self, name: str) -> StoredFile:
        """The file that a field names as its source. Accesses nothing."""
        return self.container.open_source(self.path, name, self.files)

    def with_lists(self, store: Store = DATA) -> KnownShard:
        """The shard with the fingerprints of the lists beside it, which may have segments. Asks the store."""
        if os.path.basename(self.path) not in self.files or self.container is MEGATRON:
            return self
        lists = single.list_fingerprints(self.path, store)
        lists = lists or single.manifest_fingerprint(self.path, store)
        return self._replace(files={**self.files, **lists})

    def with_samples(self) -> KnownShard:
        """The shard with the fingerprints of local files with samples, for which they are read."""
        files = zip(self.files, self.file_paths.items(), strict=True)
        return self._replace(files={name: data.with_sample(*each) for name, each in files})

    def renewed(self, known: Files) -> KnownShard:
        """The shard with what is `known` of its files (`Fingerprint.renewed`), for which they may be read.

        Its files are `known` itself if nothing has changed, not even a ctime.
        """
        if self.files == known and all(found.ctime_ns == known[name].ctime_ns for name, found in self.files.items()):
            return self._replace(files=known)
        files = zip(self.files, self.file_paths.items(), strict=True)
        return self._replace(
            files={name: data.renewed(place, known.get(name), found) for name, (place, found) in files}
        )


def shard_name(location: Location, container: Container) -> str:
    """The last component of a shard's path, without the suffix of its container; of a file that stands for its
    directory, that of the directory.
    """
    if container is KALDI:
        location = Location.of(os.path.dirname(location.path))
    return location.name if container is DIRECTORY else plain_stem(location.name)


def shard_at(path: str, store: Store = DATA, found: Container | None = None) -> KnownShard:
    """The shard at a path as it is now, without reading it. `found` is its container, if a search has found it.

    Raises NotFoundError or SourceError.
    """
    container = found or container_at(path, store)
    try:
        if store.stat(path).type is FileType.DIRECTORY:
            container = LANCE if lance_files.is_lance_dataset(path, store.list(path)) else DIRECTORY
        elif container in (DIRECTORY, LANCE):
            raise SourceError("is not a directory", path=path)
        return KnownShard(path, container, container.fingerprints(path, store))
    except NotFoundError as error:
        raise NotFoundError("no such shard", path=path) from error


def container_at(path: str, store: Store = DATA) -> Container:
    """The container of a shard that may be at a path: by its name, or by its directory if it is of a Shar."""
    return SHAR if shar_files.is_shard(path, store) else container_named(path) or DIRECTORY


def known_shard(path: str, files: Files) -> KnownShard:
    """The shard with these files; of a container by its name, if it has none, because it is missing."""
    return KnownShard(path, _container(path, files), files)


def open_shard(path: str, options: Options = DEFAULT, files: Files | None = None) -> ShardReader:
    """Open the shard at a path whose fingerprints are `files`; by default, they are looked up now.

    Raises FormatError, ChangedError, NotFoundError or SourceError.
    """
    return (shard_at(path) if files is None else known_shard(path, files)).open(options)


def fingerprints(path: str, store: Store = DATA) -> Files:
    """Fingerprints of a shard's files by name, without reading them. Raises NotFoundError or SourceError."""
    return shard_at(path, store).files


def open_source(path: str, name: str, files: Files) -> StoredFile:
    """The file that a field of a shard names as its source."""
    return known_shard(path, files).open_source(name)


def _container(path: str, files: Files) -> Container:
    """The container of a shard with these files; by its name, if it has none, because it is missing."""
    name, files = os.path.basename(path), single.without_lists(files)
    if files and name not in files:  # the names in a directory, not its own
        return LANCE if lance_files.is_lance(files) else DIRECTORY
    # Cuts without a number are a Shar only with fields.
    is_shar = shar_files.is_cuts(name) and (shar_files.shar_number(name) or len(files) > 1)
    return SHAR if is_shar else container_named(path) or DIRECTORY
