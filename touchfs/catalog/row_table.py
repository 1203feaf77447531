"""The view of a table whose files are named by the ordinals of their rows (`touchfs.catalog.derived`)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from touchfs.catalog.columns import Omitted, take
from touchfs.catalog.derived import DERIVED, NO_SAMPLE, KindOrder
from touchfs.catalog.kind_table import KindTable
from touchfs.catalog.table import DIRECTORY
from touchfs.core.packed_bytes import PackedBytes
from touchfs.form.ordinals import pack_ordinal
from touchfs.format.arrow.mapped_file import Batch


class RowTable(KindTable):
    """A table without names. `kind_names` are those of its kinds (`FileKind.name`)."""

    __slots__ = ("_has_ordinals", "_kind_names")

    def __init__(
        self,
        batch: Batch,
        top: int,
        omitted: Omitted,
        keys_are_paths: bool,
        path: str,
        kind_names: Sequence[str],
    ) -> None:
        super().__init__(batch, top, omitted, keys_are_paths, path, kind_names, [*map(_extension, kind_names)])
        self._kind_names = [name.encode("utf-8", "surrogateescape") for name in kind_names]
        self._has_ordinals = omitted.get("inline") == DERIVED["inline"]

    def name(self, row: int) -> bytes:
        kind = self.kind[row]
        if kind == DIRECTORY:
            return b"%08d" % (row - 1) if row else b""
        try:
            name = self._kind_names[kind - 1]
        except IndexError:
            raise self._damaged(row) from None
        if name[:2] == b"//":
            name = name[2:]
        elif name[:1] == b"/":
            name = b"%08d" % self.ordinal[row] + name[1:]
        return self._checked(row, name)

    def paths(self, rows: NDArray[np.int64], prefix: bytes) -> list[bytes]:
        return [prefix + self.path(row) for row in rows.tolist()]

    def files(self, ordinal: int) -> list[int]:
        order = self.order
        return order.rows_of(ordinal) if isinstance(order, KindOrder) else super().files(ordinal)

    def keys(self, rows: NDArray[np.int64]) -> PackedBytes:
        return PackedBytes.of_numbers(take(self.ordinal, rows))

    def inline(self, row: int) -> bytes:
        if not self._has_ordinals:
            return super().inline(row)
        ordinal = self.ordinal[row]
        return b"" if ordinal == NO_SAMPLE else pack_ordinal(ordinal)

    def search(self, children: range, name: bytes) -> int | None:
        low, high = children.start, children.stop
        while low < high:
            middle = (low + high) // 2
            if self.name(middle) < name:
                low = middle + 1
            else:
                high = middle
        return low if low < children.stop and self.name(low) == name else None


def _extension(name: str) -> str:
    """`jpg` of `/.jpg`, `image.jpg` of `//image.jpg`, `txt` of `ERROR.txt`."""
    return name[2:] if name.startswith("/") else name.rpartition(".")[2]
