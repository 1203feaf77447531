"""Versions of Lance datasets, and rows of them. A process opens each version once (`open`).

    table = LanceTable("data.lance", version=3)
    table.take([5, 2], ["image"])

Row numbers are those of one version, which is fixed when the table is opened: rows that a later version deletes stay.
A dataset may also be replaced by another one of the same path and version. What is open goes on with the old one, as
its directory is kept open; what is opened later must have the manifest that was found when the version was fixed.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from typing import TYPE_CHECKING

from touchfs.core.errors import NotFoundError
from touchfs.core.extent import drive
from touchfs.core.location import Location
from touchfs.posix.published import HeldDirectory
from touchfs.source.data import DATA
from touchfs.source.fingerprint import Fingerprint
from touchfs.tables.lance.manifest import LanceManifest, read_manifest
from touchfs.tables.lance.open import DATASETS, OpenVersion
from touchfs.tables.lance.versions import VERSIONS, gone, manifest_names, manifests

if TYPE_CHECKING:
    import pyarrow
    from lance import LanceDataset


class LanceTable:
    """A version of a Lance dataset; by default the latest one when it is first needed. Safe for any number of threads.

    A held directory stays the one that is read, even if another one takes its path before anything is opened.
    A table can be pickled, and used after a fork of a process that has opened none. The path may be a URL.
    Methods raise NotFoundError, ChangedError for a version that is gone, FormatError for what Lance cannot read,
    SourceError, and MissingExtraError.
    """

    def __init__(
        self, path: str | HeldDirectory, version: int | None = None, manifest: Fingerprint | None = None
    ) -> None:
        location = Location.of(path.place if isinstance(path, HeldDirectory) else path)
        self.location = location.absolute if location.is_url else location
        self.path = self.location.path
        self._directory = None if isinstance(path, str) else path
        self._version = version
        self._manifest = manifest
        if self._directory is not None:
            weakref.finalize(self, DATASETS.drop_replaced, self.location.absolute).atexit = False

    @property
    def version(self) -> int:
        return self.pin()[0]

    def pin(self) -> tuple[int, Fingerprint]:
        """The version and the fingerprint of its manifest, from now on if they were not known. Lance is not needed."""
        if self._version is None or self._manifest is None:
            try:
                names = manifests(self.where)
            except NotFoundError:
                names = {}
            if not names:
                raise NotFoundError(f"is no Lance dataset: it has no version in {VERSIONS}/", path=self.path)
            version = max(names) if self._version is None else self._version
            if version not in names:
                raise gone(self.path, version)
            self._manifest = DATA.stat(os.path.join(self.where, VERSIONS, names[version])).fingerprint
            self._version = version
        return self._version, self._manifest

    def read_manifest(self) -> LanceManifest:
        """The rows of each fragment, which are known without Lance."""
        version, fingerprint = self.pin()
        for name in manifest_names(version):
            place = os.path.join(self.where, VERSIONS, name)
            with suppress(NotFoundError), closing(DATA.open(place, fingerprint)) as file:
                file.open()
                return drive(read_manifest(fingerprint.size), file)
        raise gone(self.path, version)

    @property
    def schema(self) -> pyarrow.Schema:
        return self._open.schema

    @property
    def rows(self) -> int:
        """The number of rows, without deleted ones."""
        return self._open.rows

    @property
    def dataset(self) -> LanceDataset:
        """Lance's own object of this process. Its calls raise Lance's errors: see `lance_errors`."""
        dataset: LanceDataset = self._open.dataset
        return dataset

    def take(self, rows: Sequence[int], columns: Sequence[str] | None = None) -> pyarrow.Table:
        """Rows by number, in their order, each as often as it is named. Raises IndexError, also for negative numbers.

        `image.bytes` is the column `image` with this child only. Blob columns have descriptors, as Lance gives them.
        """
        return self._open.take(rows, columns)

    @property
    def _open(self) -> OpenVersion:
        return DATASETS.open((self.location.absolute, *self.pin()), self)

    @property
    def where(self) -> str:
        """A path that leads to the dataset, for this process."""
        return self.path if self._directory is None else self._directory.path

    def __reduce__(self) -> tuple[Callable[..., LanceTable], tuple[str, int | None, Fingerprint | None]]:
        # A directory that is held and was replaced has another path by now.
        path = self.path if self._directory is None else os.path.realpath(self._directory.path)
        return LanceTable, (path, self._version, self._manifest)

    def __repr__(self) -> str:
        return f"LanceTable({self.path!r}, {self._version})"
