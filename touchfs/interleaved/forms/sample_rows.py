"""The form of all rows of an interleaved sample in a table, as one JSON."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import cast

from touchfs.core.errors import FormatError
from touchfs.core.extent import Extent
from touchfs.form.base import Form
from touchfs.interleaved.forms.made import MadeContent
from touchfs.limits import Limits, too_large
from touchfs.source.store import StoredFile
from touchfs.tables.values.field_paths import Path, build_path, parse_path

# The first row of a run, and the number of its rows
_RUN = struct.Struct("<QI")
# Rows whose JSON is made at a time
_ROWS_AT_ONCE = 256


def rows_detail(rows: Sequence[int]) -> bytes:
    """The detail of rows with these ascending numbers in their table."""
    runs: list[list[int]] = []
    for row in rows:
        if runs and row == sum(runs[-1]):
            runs[-1][1] += 1
        else:
            runs.append([row, 1])
    return b"".join(_RUN.pack(*run) for run in runs)


@dataclass(frozen=True, slots=True)
class SampleRows(Form):
    """`sample-rows[/PATH…]`: rows of the table that the source is, as a JSON list. `detail` is of `rows_detail`.

    Cells at the paths are left out, as in the form `row`.
    """

    left_out: tuple[Path, ...] = ()

    @classmethod
    def parse(cls, *paths: str) -> SampleRows:
        """The form with these paths. Raises ValueError or FormatError."""
        return cls(tuple(map(parse_path, paths)))

    def __str__(self) -> str:
        return "/".join(["sample-rows", *map(build_path, self.left_out)])

    def size(self, length: int, detail: bytes) -> None:
        return None

    def known_size(self, extent: Extent, detail: bytes, limits: Limits) -> int | None:
        data = self.content(extent, detail, limits).find()
        return None if data is None else len(data)

    def content(self, extent: Extent, detail: bytes, limits: Limits) -> MadeContent:
        if not detail or len(detail) % _RUN.size:
            raise FormatError("the catalog's description of a sample is damaged: index with --force")

        def make() -> bytes:
            from touchfs.tables.rows.open_table import open_table_file

            table = open_table_file(cast("StoredFile", extent.source), limits)
            texts: list[bytes] = []
            size = 0
            for first, count in _pieces(_RUN.iter_unpack(detail)):
                found = table.json_rows(first, count, self.left_out)
                if len(found) != count:
                    raise FormatError("the table has no such row: index with --force")
                texts += [text.rstrip(b"\n") for text in found]
                size += sum(map(len, found))
                if size > limits.decoded:
                    raise FormatError(too_large(limits.decoded))
            return b"[\n" + b",\n".join(texts) + b"\n]\n"

        return MadeContent(Extent(extent.source, 0, 1), f"{self}\0{detail.hex()}", make)


def _pieces(runs: Iterable[tuple[int, ...]]) -> Iterable[tuple[int, int]]:
    for first, count in runs:
        for start in range(first, first + count, _ROWS_AT_ONCE):
            yield start, min(_ROWS_AT_ONCE, first + count - start)
