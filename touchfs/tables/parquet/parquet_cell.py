"""The form of cells of Parquet files whose places are found when they are first looked up, page by page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from touchfs.core.errors import FormatError
from touchfs.core.extent import Buffer, Content, Extent
from touchfs.form.arrays import Npy
from touchfs.form.base import Form
from touchfs.form.kept import identity_of
from touchfs.form.ordinals import parse_ordinal
from touchfs.form.plain import BYTES
from touchfs.limits import Limits
from touchfs.tables.parquet.parquet_pages import find_cells, open_cells
from touchfs.tables.values.cell_source import cell_extent
from touchfs.tables.values.field_paths import Path, build_path

if TYPE_CHECKING:
    from touchfs.source.store import StoredFile


@dataclass(frozen=True, slots=True)
class ParquetCell(Form):
    """`parquet/PATH[/FORM]`: a cell of a column of bytes of the Parquet file that the source is, in a form if its bytes
    are not the file. `detail` packs the ordinal of its row.
    """

    path: Path
    form: Form = BYTES

    def __post_init__(self) -> None:
        if self.form is not BYTES and not isinstance(self.form, Npy):
            raise FormatError(f"no cell of a Parquet file has the form {self.form}")

    def __str__(self) -> str:
        form = "" if self.form is BYTES else f"/{self.form}"
        return f"parquet/{build_path(self.path)}{form}"

    def size(self, length: int, detail: bytes) -> None:
        return None

    @property
    def is_stored(self) -> bool:
        return self.form is BYTES

    def content(self, extent: Extent, detail: bytes, limits: Limits) -> ParquetCellFile:
        return ParquetCellFile(cast("StoredFile", extent.source), self, parse_ordinal(detail), limits)

    def whole(self, extent: Extent, detail: bytes, limits: Limits) -> Buffer:
        source: Any = extent.source
        cell = open_cells(source, self.path, limits).cell(parse_ordinal(detail))
        if self.form is BYTES:
            return cell.source.read(cell.offset, cell.size)
        found = self.form.content(cell, b"", limits)
        return found.read(0, found.size)

    def known_size(self, extent: Extent, detail: bytes, limits: Limits) -> int | None:
        found = self.content(extent, detail, limits).known()
        return None if found is None else found.size

    def stored(self, extent: Extent, detail: bytes, limits: Limits) -> Extent:
        cell = self.content(extent, detail, limits)
        return self._whole(extent, detail, cell, cell.size)

    def known_stored(self, extent: Extent, detail: bytes, limits: Limits) -> Extent | None:
        cell = self.content(extent, detail, limits)
        found = cell.known()
        return None if found is None else self._whole(extent, detail, cell, found.size)

    def _whole(self, extent: Extent, detail: bytes, cell: ParquetCellFile, size: int) -> Extent:
        """The bytes of a cell. Its page is looked at again if its place is no longer known."""
        identity = identity_of(Extent(extent.source, 0, 0))
        return cell_extent(cell, size, identity and f"{self}\0{identity}\0{parse_ordinal(detail)}")


class ParquetCellFile:
    """The content of a cell. Its page is looked at when `size` or bytes are first needed; both block for that."""

    __slots__ = ("_form", "_limits", "_row", "_source")

    def __init__(self, source: StoredFile, form: ParquetCell, row: int, limits: Limits) -> None:
        self._source = source
        self._form = form
        self._row = row
        self._limits = limits

    @property
    def size(self) -> int:
        """The size in bytes."""
        return self.found().size

    def read(self, offset: int, length: int) -> Buffer:
        return self.found().read(offset, length)

    def read_nowait(self, offset: int, length: int) -> Buffer | None:
        found = self.known()
        return None if found is None else found.read_nowait(offset, length)

    def known(self) -> Content | None:
        """The content if this process has looked at its page. Never waits."""
        cells = find_cells(self._source, self._form.path, self._limits)
        found = None if cells is None else cells.known(self._row)
        return None if found is None else self._shown(found)

    def found(self) -> Content:
        """The content, after a look at its page."""
        return self._shown(open_cells(self._source, self._form.path, self._limits).cell(self._row))

    def _shown(self, cell: Extent) -> Content:
        return self._form.form.content(cell, b"", self._limits)
