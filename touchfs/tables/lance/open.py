"""The Lance datasets that a process has open.

Lance has threads of its own, which a fork does not copy: of six forks of a process that had read rows, three crashed in
their first call, and some hung. So a dataset is opened by the process that reads it, and a fork of one that has opened
any gets an error instead. Datasets of the parent are kept there, because dropping one runs Lance's code.

Lance needs about 0.3 ms for a row, and about as long for a hundred. So while one thread takes rows, others that ask for
the same columns wait and are served together by the next call. Nothing here is for a thread that must not wait.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

from touchfs.core.errors import FormatError, NotFoundError, SourceError, map_os_errors
from touchfs.core.extras import load_lance
from touchfs.core.location import Location
from touchfs.posix.atomic import is_at
from touchfs.posix.bounded_cache import BoundedCache
from touchfs.posix.links import check_links
from touchfs.posix.published import hold_directory
from touchfs.source.fingerprint import Fingerprint
from touchfs.tables.lance.errors import lance_errors
from touchfs.tables.lance.gather import Gatherer
from touchfs.tables.lance.versions import check_manifest

if TYPE_CHECKING:
    import pyarrow
    from lance import LanceDataset

# Open datasets of a process. Each has Lance's own cache of metadata.
DATASETS_KEPT = 32
METADATA_CACHE_SIZE = INDEX_CACHE_SIZE = 64 << 20


class OpenVersion:
    """An open version, and the rows that threads wait for."""

    def __init__(self, location: Location, version: int, manifest: Fingerprint, where: str) -> None:
        self._path = location.path
        self._directory: int | None = None
        if location.is_url:
            from touchfs.tables.lance.endpoint import address_of  # local datasets need none

            address = address_of(self._path, version, manifest)
            self._open(address.uri, version, address.storage_options)
        else:
            self._open_local(version, manifest, where)
        self._gatherers: dict[tuple[str, ...] | None, Gatherer] = {}

    def _open_local(self, version: int, manifest: Fingerprint, where: str) -> None:
        path = self._path
        directory = _open_directory(path, where)
        try:
            with map_os_errors(path):
                check_manifest(path, directory, version, manifest)
                check_stored(path, f"/proc/self/fd/{directory}")
            self._open(f"/proc/self/fd/{directory}", version)
        except BaseException:
            os.close(directory)
            raise
        weakref.finalize(self.dataset, os.close, directory).atexit = False  # a process that has the dataset can read it
        self._directory = directory

    def _open(self, uri: str, version: int, storage_options: dict[str, str] | None = None) -> None:
        with lance_errors(self._path):
            self.dataset: LanceDataset = load_lance().dataset(
                uri,
                version=version,
                index_cache_size_bytes=INDEX_CACHE_SIZE,
                metadata_cache_size_bytes=METADATA_CACHE_SIZE,
                storage_options=storage_options,
            )
            if self.dataset.base_paths():
                message = "its data lie in another dataset: a shallow clone is not read"
                raise FormatError(message, path=self._path)
            self.rows: int = self.dataset.count_rows()
            self.schema: pyarrow.Schema = self.dataset.schema

    def take(self, rows: Sequence[int], columns: Sequence[str] | None) -> pyarrow.Table:
        for row in (min(rows, default=0), max(rows, default=0)):
            if rows and not 0 <= row < self.rows:
                raise IndexError(f"row {row} of {self.rows}")
        names = None if columns is None else tuple(columns)
        for name in names or ():
            if not _has_column(self.schema, name):  # Lance panics
                raise NotFoundError(f"has no column {name!r}", path=self._path)
        gatherer = self._gatherers.get(names)
        if gatherer is None:
            # It does not refer to us: then we would not go until the garbage collector comes.
            gatherer = self._gatherers.setdefault(names, Gatherer(partial(_take, self.dataset, self._path, names)))
        return gatherer.take([int(row) for row in rows])

    @property
    def is_current(self) -> bool:
        """False if another directory has taken the path. What is at a URL is not held, so it never is another one."""
        return self._directory is None or is_at(self._directory, self._path)


def _take(dataset: LanceDataset, path: str, columns: tuple[str, ...] | None, rows: list[int]) -> pyarrow.Table:
    if not rows:
        return dataset.schema.empty_table().select(columns or dataset.schema.names)
    with lance_errors(path):
        return dataset.take(rows, columns=None if columns is None else list(columns))


def _has_column(schema: pyarrow.Schema, name: str) -> bool:
    """True if a schema has a column, or with dots a child of one: Lance allows no other dots in names."""
    column, *children = name.split(".")
    if column not in schema.names:
        return False
    kind = schema.field(column).type
    for child in children:
        if not (hasattr(kind, "get_field_index") and kind.get_field_index(child) >= 0):
            return False
        kind = kind.field(child).type
    return True


_Name = tuple[Location, int, Fingerprint]


class _Table(Protocol):
    @property
    def path(self) -> str: ...

    @property
    def where(self) -> str: ...


class OpenVersions:
    """The open datasets of a process, each by an absolute location, a version, and a manifest."""

    def __init__(self) -> None:
        self._of_parents: list[object] = []
        self._was_used = self._is_fork_of_user = False
        self._kept: BoundedCache[_Name, OpenVersion] = BoundedCache(DATASETS_KEPT)
        self.forget = self._kept.forget
        os.register_at_fork(after_in_child=self._forked)

    def _forked(self) -> None:
        self._of_parents.append(self._kept.items())
        self.forget()
        self._is_fork_of_user = self._was_used

    def open(self, name: _Name, table: _Table) -> OpenVersion:
        """The open dataset of a table. It is opened if it is not open."""
        if self._is_fork_of_user:
            problem = "Lance was used before this process was forked, and does not survive that"
            raise SourceError(f"{problem}: start processes by spawn or forkserver", path=table.path)
        self._was_used = True
        return self._kept.get(name, lambda: OpenVersion(*name, table.where))

    def drop_replaced(self, location: Location) -> None:
        """Close datasets that were at a location and are not any more, so that their directories can be removed.

        A reader of one of them opens it again. The garbage collector may call this anywhere.
        """
        for name, opened in self._kept.items():
            if name[0] == location and not opened.is_current:
                self._kept.pop(name)


# The datasets that this process has open.
DATASETS = OpenVersions()


def _open_directory(path: str, where: str) -> int:
    """A descriptor of the directory. As long as it is open, a cache that replaces it does not remove it."""
    with map_os_errors(path):
        check_links(where)
        return hold_directory(where)


# In these directories, and in those in them, Lance opens files: it waits for ever at a pipe, and follows any link.
_DIRECTORIES = ("data", "_versions", "_deletions", "_indices", "_transactions")
_DEPTH = 1


def check_stored(path: str, where: str) -> None:
    """Raise FormatError if the dataset at a path has something else than files, and OSError for links as `check_links`.

    `where` is a path that leads to it. Takes about 1 µs a file.
    """
    for name in _DIRECTORIES:
        place = os.path.join(where, name)
        if os.path.islink(place):
            check_links(place)
        if os.path.isdir(place):
            _check(path, where, place, _DEPTH)


def _check(path: str, where: str, directory: str, depth: int) -> None:
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.is_symlink():
                check_links(entry.path)
            if entry.is_dir():
                if depth:
                    _check(path, where, entry.path, depth - 1)
            elif not entry.is_file():
                name = os.path.relpath(entry.path, where)
                raise FormatError(f"its {name[:120]!r} is no file: not read", path=path)
