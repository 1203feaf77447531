"""The named iterators of a dataset, in its store."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager

from touchfs.cli.dataset_argument import open_indexed
from touchfs.cli.dataset_options import ReadOptions
from touchfs.core.errors import NotFoundError
from touchfs.core.token import from_json
from touchfs.dataset.samples import DatasetSamples
from touchfs.iterators.iterators import Iterators
from touchfs.iterators.store_place import StateDatabase, fleet_store
from touchfs.store.place import STATE_SUFFIX, state_path
from touchfs.store.store import StateStore


@contextmanager
def open_stored(
    path: str, state_dir: str | None, state_database: StateDatabase | None, read_options: ReadOptions
) -> Iterator[StoredIterators]:
    """Open the iterators of the dataset at `path`, and index it first if necessary."""
    dataset, split = open_indexed(path, read_options), read_options.options.split
    local, store = state_path(path, STATE_SUFFIX, state_dir, split), None
    if state_database is not None:
        place = state_database.place(path, split, os.path.dirname(local))
        store = fleet_store(place, lambda: DatasetSamples(dataset).fingerprint)
    with closing(store or StateStore(local)) as opened:
        yield StoredIterators(Iterators(opened, dataset))


class StoredIterators:
    """The iterators of an open store."""

    def __init__(self, iterators: Iterators) -> None:
        self._iterators = iterators

    def names(self) -> list[str]:
        return self._iterators.names()

    def create(self, name: str, spec: bytes) -> None:
        iterator = self._iterators.create(name)
        try:
            self._iterators.write(iterator, "spec", from_json(spec))
        except BaseException:
            self._iterators.remove(name)
            raise

    def remove(self, name: str) -> None:
        self._iterators.remove(name)

    def read(self, name: str, file: str) -> bytes:
        return self._iterators.read(self._find(name), file).encode(errors="surrogateescape")

    def write(self, name: str, file: str, text: bytes) -> None:
        self._iterators.write(self._find(name), file, from_json(text))

    def _find(self, name: str) -> int:
        iterator = self._iterators.find(name)
        if iterator is None:
            raise NotFoundError(f"there is no iterator {name!r}: `touchfs iterator list` shows all")
        return iterator
