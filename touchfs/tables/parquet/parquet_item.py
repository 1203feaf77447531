"""The form of the elements of lists of bytes in a Parquet file, as several images of a row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from touchfs.core.errors import FormatError
from touchfs.core.extent import Content, Extent
from touchfs.form.base import Form
from touchfs.form.computed import WINDOWS
from touchfs.form.kept import identity_of
from touchfs.form.ordinals import parse_ordinal
from touchfs.limits import Limits
from touchfs.tables.values.field_paths import Path, build_path, parse_path

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from touchfs.source.store import StoredFile


@dataclass(frozen=True, slots=True)
class ParquetItem(Form):
    """`parquet-item/PATH/ITEM`: the element of this number in a list, at a path through its elements. `detail` packs
    the ordinal of its row.
    """

    path: Path
    item: int

    @classmethod
    def parse(cls, path: str, item: str) -> ParquetItem:
        """The form with these parameters. Raises ValueError or FormatError."""
        return cls(parse_path(path), int(item))

    def __post_init__(self) -> None:
        if len(self.path) < 2 or self.item < 0:
            raise FormatError(f"no list has an element {self.item} at {build_path(self.path)}")

    def __str__(self) -> str:
        return f"parquet-item/{build_path(self.path)}/{self.item}"

    def size(self, length: int, detail: bytes) -> None:
        return None

    def known_size(self, extent: Extent, detail: bytes, limits: Limits) -> int | None:
        data = WINDOWS.find((self._name(extent, detail), 0))
        return None if data is None else len(data)

    def content(self, extent: Extent, detail: bytes, limits: Limits) -> Content:
        row = parse_ordinal(detail)

        def read() -> bytes:
            from touchfs.tables.parquet.open_file import open_parquet

            table = open_parquet(cast("StoredFile", extent.source), limits)
            if row >= table.rows:
                raise FormatError(f"the table has no row {row}: index with --force")
            (values,) = table.items(self.path, row, 1)
            if values is None or len(values) <= self.item or values[self.item] is None:
                raise FormatError(f"row {row} has no element {self.item} in its list: index with --force")
            return cast("bytes", values[self.item])

        return _Item(self._name(extent, detail), read)

    def _name(self, extent: Extent, detail: bytes) -> Hashable:
        source = cast("StoredFile", extent.source)
        return str(self), identity_of(Extent(source, 0, 0)) or id(source), detail


class _Item:
    """The content of an element. Its size, and reading, block until it is decoded."""

    __slots__ = ("_name", "_read")

    def __init__(self, name: Hashable, read: Callable[[], bytes]) -> None:
        self._name = name
        self._read = read

    @property
    def size(self) -> int:
        """The size in bytes."""
        return len(self._bytes())

    def read(self, offset: int, length: int) -> bytes:
        return self._bytes()[offset : offset + length]

    def read_nowait(self, offset: int, length: int) -> bytes | None:
        data = WINDOWS.find((self._name, 0))
        return None if data is None else bytes(data[offset : offset + length])

    def _bytes(self) -> bytes:
        return bytes(WINDOWS.get((self._name, 0), self._read))
