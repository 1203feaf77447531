"""All data: `DATA` asks the store of each path, and a `Look` also remembers the answers."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, BinaryIO

from touchfs.core.errors import NotFoundError, SourceError, TouchfsError
from touchfs.core.location import Location
from touchfs.source.fingerprint import Fingerprint, sample_of
from touchfs.source.plain import plain_store
from touchfs.source.store import FileType, Status, Store, StoredEntry, StoredFile


def store_of(path: str) -> Store:
    """The store that a path is in."""
    location = Location.of(path)
    return plain_store(location) if location.inside is None else _archives()


@cache
def _archives() -> Store:
    from touchfs.source.archived.store import ArchiveStore  # most commands need none

    return ArchiveStore()


class _AllData:
    """The stores of all paths as one."""

    def list(self, directory: str) -> Sequence[StoredEntry]:
        return store_of(directory).list(directory)

    def stat(self, path: str) -> Status:
        return store_of(path).stat(path)

    def open(self, path: str, fingerprint: Fingerprint | None = None) -> StoredFile:
        return store_of(path).open(path, fingerprint)

    def open_beneath(self, root: str, path: str, fingerprint: Fingerprint | None = None) -> StoredFile:
        return store_of(root).open_beneath(root, path, fingerprint)

    def stream(self, path: str) -> BinaryIO:
        return store_of(path).stream(path)


DATA: Store = _AllData()


class Look(_AllData):
    """One look at data: each directory is listed once and each path asked for once, and the answers are kept. What is
    in a directory whose listing has its status is not asked for.

    Opening a dataset asks several times, for several purposes, about the same thousands of paths. Several threads may
    share a look. That nothing is at a path is an answer; errors are not kept. It is sent to other processes without its
    answers.
    """

    def __init__(self) -> None:
        self._listed: dict[str, Sequence[StoredEntry]] = {}
        self._found: dict[str, Status] = {}
        self._missing: dict[str, str] = {}  # why
        # Directories whose listings have the status of all that is in them.
        self._answered: set[str] = set()

    def __reduce__(self) -> tuple[type[Look], tuple[()]]:
        return Look, ()

    def list(self, directory: str) -> Sequence[StoredEntry]:
        if (entries := self._listed.get(directory)) is None:
            entries = self._listed[directory] = super().list(directory)
            if entries and entries[0].status is not None:
                self._answered.add(directory.rstrip("/"))
                for entry in entries:
                    if entry.status is not None:
                        self._found[os.path.join(directory, entry.name)] = entry.status
        return entries

    def names(self, directory: str) -> frozenset[str] | None:
        """The names in a directory, None if it was not listed."""
        entries = self._listed.get(directory)
        return None if entries is None else frozenset(entry.name for entry in entries)

    def stat(self, path: str) -> Status:
        if (found := self._found.get(path)) is None:
            if path in self._missing or os.path.dirname(path) in self._answered:
                raise NotFoundError(self._missing.get(path, "no such file or directory"), path=path)
            try:
                found = self._found[path] = super().stat(path)
            except NotFoundError as error:
                self._missing[path] = error.message
                raise
        return found


def find_type(path: str, store: Store = DATA) -> FileType | None:
    """The type of what is at a path, or None if nothing is there or it cannot be looked at."""
    try:
        return store.stat(path).type
    except (NotFoundError, SourceError):
        return None


def with_sample(path: str, found: Fingerprint) -> Fingerprint:
    """The fingerprint of a file with a sample, if it is a local file that can be read."""
    if not found.is_local:
        return found
    try:
        with closing(DATA.open(path, found)) as file:
            return replace(found, sample=sample_of(file.read, found.size))
    except TouchfsError:
        return found


def renewed(path: str, known: Fingerprint | None, found: Fingerprint) -> Fingerprint:
    """The fingerprint of a file as it is `found` now, with what is `known` of it before: see `Fingerprint.renewed`."""
    if known is None or not found.is_local or found.etag is not None or not known.matches(found):
        return found
    try:
        with closing(DATA.open(path, found)) as file:
            return known.renewed(found, file.read)
    except TouchfsError:  # a read of the file tells it
        return known


if TYPE_CHECKING:
    _: type[Store] = Look
