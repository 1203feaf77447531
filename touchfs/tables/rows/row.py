"""The form of a row of an Arrow or Parquet file as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from touchfs.core.extent import Content, Extent
from touchfs.form.base import Form
from touchfs.form.kept import identity_of
from touchfs.form.ordinals import parse_ordinal
from touchfs.limits import Limits
from touchfs.tables.values.field_paths import Path
from touchfs.tables.values.partition import with_partition
from touchfs.tables.values.row_texts import RowText, RowTexts, build_row, parse_row

if TYPE_CHECKING:
    from touchfs.source.store import StoredFile


@dataclass(frozen=True, slots=True)
class Row(Form):
    """`row[/PATH…][/VALUES]`: a row of the Arrow or Parquet file that the source is, as JSON
    (`touchfs.tables.values.json_values`). `detail` packs its ordinal.

    Each path leads to cells that the row leaves out, as they are files: the numbers of a column and of children in it,
    as `3` or `3.0`. The values are those of directories (`touchfs.tables.values.partition`), quoted as in a URL.
    """

    left_out: tuple[Path, ...] = ()
    partition: str = ""

    @classmethod
    def parse(cls, *parameters: str) -> Row:
        """The form with these parameters. Raises ValueError or FormatError."""
        return cls(*parse_row(parameters))

    def __str__(self) -> str:
        return build_row("row", self.left_out, self.partition)

    def size(self, length: int, detail: bytes) -> None:
        return None

    def content(self, extent: Extent, detail: bytes, limits: Limits) -> Content:
        return RowText(self._rows(extent, limits), parse_ordinal(detail))

    def known_size(self, extent: Extent, detail: bytes, limits: Limits) -> int | None:
        text = self._rows(extent, limits).find(parse_ordinal(detail))
        return None if text is None else len(text)

    def _rows(self, extent: Extent, limits: Limits) -> RowTexts:
        source = cast("StoredFile", extent.source)
        name = f"{self}\0{identity_of(Extent(source, 0, 0))}"

        def make(first: int, count: int) -> list[bytes]:
            from touchfs.tables.rows.open_table import open_table_file

            rows = open_table_file(source, limits).json_rows(first, count, self.left_out)
            return with_partition(rows, self.partition)

        return RowTexts(name, make)
