"""A view whose kinds of files have the extensions as keys of samples: those in names may be in upper case."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from touchfs.catalog.columns import Omitted, take
from touchfs.catalog.table import Table
from touchfs.format.arrow.mapped_file import Batch


class KindTable(Table):
    """A table whose files have the extensions of their kinds, `kind_extensions`, in the order of `Catalog.kinds`."""

    __slots__ = ("_extensions",)

    def __init__(
        self,
        batch: Batch,
        top: int,
        omitted: Omitted,
        keys_are_paths: bool,
        path: str,
        kind_names: Sequence[str],
        kind_extensions: Sequence[str],
    ) -> None:
        super().__init__(batch, top, omitted, keys_are_paths, path, kind_names)
        self._extensions = ["", *kind_extensions]

    def extension(self, row: int) -> str:
        try:
            return self._extensions[self.kind[row]]
        except IndexError:
            raise self._damaged(row) from None

    def have_extension(self, rows: NDArray[np.int64], extension: bytes) -> NDArray[np.bool_]:
        wanted = extension.decode("utf-8", "surrogateescape")
        have = np.array([False, *(each == wanted for each in self._extensions[1:])])
        return have[take(self.kind, rows)]
