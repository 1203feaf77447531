"""Forms of the files of Lance datasets. The source of such a file is the manifest, which belongs to one version."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, cast

from touchfs.core.errors import FormatError
from touchfs.core.extent import Buffer, Content, Extent, Memory
from touchfs.form.arrays import Npy
from touchfs.form.base import Form
from touchfs.form.ordinals import parse_ordinal
from touchfs.form.plain import BYTES
from touchfs.limits import Limits
from touchfs.source.fingerprint import Fingerprint
from touchfs.tables.lance.cells import LanceCells
from touchfs.tables.lance.dataset import LanceTable
from touchfs.tables.lance.versions import manifest_of_dataset
from touchfs.tables.values.cell_source import cell_extent
from touchfs.tables.values.field_paths import Path, build_path
from touchfs.tables.values.partition import with_partition
from touchfs.tables.values.row_texts import RowText, RowTexts, build_row

if TYPE_CHECKING:
    from touchfs.source.store import StoredFile

# Columns of which a process keeps sizes.
COLUMNS_KEPT = 256
# The detail of a video: its first row, its number of frames.
_FRAMES = struct.Struct("<QQ")


@dataclass(frozen=True, slots=True)
class LanceCell(Form):
    """`lance/PATH[/FORM]`: a cell of a column of a Lance dataset, in a form if its bytes are not the file. `detail`
    packs the ordinal of its row.
    """

    path: Path
    form: Form = BYTES

    def __post_init__(self) -> None:
        if self.form is not BYTES and not isinstance(self.form, Npy):
            raise FormatError(f"no cell of Lance has the form {self.form}")

    def __str__(self) -> str:
        form = "" if self.form is BYTES else f"/{self.form}"
        return f"lance/{build_path(self.path)}{form}"

    def size(self, length: int, detail: bytes) -> None:
        return None

    @property
    def is_stored(self) -> bool:
        return self.form is BYTES

    def content(self, extent: Extent, detail: bytes, limits: Limits) -> LanceFile:
        return LanceFile(self._cells(extent), parse_ordinal(detail), self.form, limits)

    def stored(self, extent: Extent, detail: bytes, limits: Limits) -> Extent:
        cell = self.content(extent, detail, limits)
        return self._whole(extent, detail, cell, cell.size)

    def known_stored(self, extent: Extent, detail: bytes, limits: Limits) -> Extent | None:
        size = self.known_size(extent, detail, limits)
        return None if size is None else self._whole(extent, detail, self.content(extent, detail, limits), size)

    def _whole(self, extent: Extent, detail: bytes, cell: LanceFile, size: int) -> Extent:
        """The bytes of a cell, which is read again if it is no longer kept."""
        return cell_extent(cell, size, f"{self}\0{_version(extent)}\0{parse_ordinal(detail)}")

    def known_size(self, extent: Extent, detail: bytes, limits: Limits) -> int | None:
        size = self._cells(extent).known_size(parse_ordinal(detail))
        return None if size is None else self.form.size(size, b"")

    def _cells(self, extent: Extent) -> LanceCells:
        return _cells(*_version(extent), self.path)


class LanceFile:
    """The content of a cell, which is taken from Lance when `size` or bytes are first needed. Both block for that."""

    __slots__ = ("_cells", "_form", "_limits", "_row")

    def __init__(self, cells: LanceCells, row: int, form: Form, limits: Limits) -> None:
        self._cells = cells
        self._row = row
        self._form = form
        self._limits = limits

    @property
    def size(self) -> int:
        """The size in bytes."""
        return self._form.size(self._cells.size(self._row), b"") or 0

    def read(self, offset: int, length: int) -> Buffer:
        return self._shown(self._cells.read(self._row)).read(offset, length)

    def read_nowait(self, offset: int, length: int) -> Buffer | None:
        data = self._cells.known(self._row)
        return None if data is None else self._shown(data).read_nowait(offset, length)

    def _shown(self, data: bytes) -> Content:
        memory = Memory(data)
        return memory if self._form is BYTES else self._form.content(Extent(memory, 0, len(data)), b"", self._limits)


@dataclass(frozen=True, slots=True)
class LanceRow(Form):
    """`lance-row[/PATH…][/VALUES]`: a row of a Lance dataset as JSON, with the parameters of `Row`. `detail` packs its
    ordinal.
    """

    left_out: tuple[Path, ...] = ()
    partition: str = ""

    def __str__(self) -> str:
        return build_row("lance-row", self.left_out, self.partition)

    def size(self, length: int, detail: bytes) -> None:
        return None

    def content(self, extent: Extent, detail: bytes, limits: Limits) -> Content:
        return RowText(self._rows(extent), parse_ordinal(detail))

    def known_size(self, extent: Extent, detail: bytes, limits: Limits) -> int | None:
        text = self._rows(extent).find(parse_ordinal(detail))
        return None if text is None else len(text)

    def _rows(self, extent: Extent) -> RowTexts:
        path, version, manifest = _version(extent)

        def make(first: int, count: int) -> list[bytes]:
            from touchfs.tables.lance.json_rows import json_rows

            rows = json_rows(LanceTable(path, version, manifest), first, count, self.left_out)
            return with_partition(rows, self.partition)

        return RowTexts((str(self), path, version, manifest), make)


@dataclass(frozen=True, slots=True)
class LanceVideo(Form):
    """`lance-video/PATH/EXTENSION`: the record of a video whose frames are rows of a Lance dataset: `detail` packs
    which rows, and has the JSON. The path is that of the column with the frames.

    A `detail` that packs only the ordinal of a row stands for the frame in it: catalogs do not list frames.
    """

    path: Path
    extension: str

    def __post_init__(self) -> None:
        if not (self.extension.isascii() and self.extension.isalnum()):
            raise FormatError(f"no frames are called .{self.extension}")

    def __str__(self) -> str:
        return f"lance-video/{build_path(self.path)}/{self.extension}"

    def size(self, length: int, detail: bytes) -> int | None:
        return None if len(detail) < _FRAMES.size else len(detail) - _FRAMES.size

    def content(self, extent: Extent, detail: bytes, limits: Limits) -> Content:
        if len(detail) < _FRAMES.size:
            return self._frame.content(extent, detail, limits)
        return Memory(detail[_FRAMES.size :])

    def known_size(self, extent: Extent, detail: bytes, limits: Limits) -> int | None:
        size = self.size(extent.size, detail)
        return self._frame.known_size(extent, detail, limits) if size is None else size

    @property
    def _frame(self) -> LanceCell:
        return LanceCell(self.path)


def pack_video(start: int, frames: int, record: dict[str, object]) -> bytes:
    """The detail of the form `LanceVideo`: the first row of a video, its number of frames, and its JSON."""
    return _FRAMES.pack(start, frames) + (json.dumps(record, ensure_ascii=False) + "\n").encode("utf-8", "replace")


def video_rows(detail: bytes) -> range:
    """The rows of the frames of a video. Raises FormatError if its detail is damaged."""
    if len(detail) < _FRAMES.size:
        raise FormatError("the catalog's description of a video is damaged: index with --force")
    start, frames = _FRAMES.unpack_from(detail)
    return range(start, start + frames)


def _version(extent: Extent) -> tuple[str, int, Fingerprint | None]:
    """The path of a dataset, its version, and the fingerprint of its manifest, which is the source of the extent."""
    manifest = cast("StoredFile", extent.source)
    path: str | None = getattr(manifest, "path", None)  # bytes in memory have none
    found = manifest_of_dataset(path or "")
    if found is None:
        raise FormatError("the catalog takes another file for a manifest: index with --force", path=path)
    return (*found, manifest.fingerprint)


@lru_cache(COLUMNS_KEPT)
def _cells(path: str, version: int, manifest: Fingerprint | None, column: Path) -> LanceCells:
    return LanceCells((path, version, manifest, column), LanceTable(path, version, manifest), column)
