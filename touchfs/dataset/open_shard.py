"""An open shard of a dataset: its mapped tables, its files, and the forms that make contents from them."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from touchfs.catalog.catalog import FileKind
from touchfs.catalog.columns import take
from touchfs.catalog.table import DIRECTORY, Table
from touchfs.dataset import Dataset
from touchfs.errors import FormatError, UsageError
from touchfs.extent import Content, Extent, Memory
from touchfs.form.base import Form, Timing
from touchfs.form.beside import Beside
from touchfs.form.lengths import info_of, known_info
from touchfs.form.plain import BYTES, INLINE
from touchfs.form.recordings import Pcm
from touchfs.form.renderings import Rendered
from touchfs.form.table import parse_form
from touchfs.form.video.frames import FramesOf
from touchfs.form.video.video_span import VideoSpan
from touchfs.media.duration import AudioInfo
from touchfs.media.extensions import can_be_cut, preference
from touchfs.media.slices.rendering import Rendering
from touchfs.sample import Field, StoredRecording
from touchfs.source.ranges import read_ranges
from touchfs.source.store import StoredFile

if TYPE_CHECKING:
    from touchfs.media.slices.media_info import MediaInfo

# Each open shard is a memory mapping, and a process may have at most 65,530 (vm.max_map_count).
SHARDS_KEPT = 8192
_NOTHING = Extent(Memory(b""), 0, 0)


class StoredBytes(NamedTuple):
    """A range of the source of a kind of file, what its form needs besides, and how the recording is rendered."""

    kind: int
    offset: int
    length: int
    detail: bytes
    rendering: Rendering | None = None


def stored_at(table: Table, row: int) -> StoredBytes:
    """The stored bytes of the file at a row."""
    return StoredBytes(table.kind[row] - 1, table.offset[row], table.length[row], table.inline(row))


class OpenShard:
    """Open the shard at a position of a dataset. `forms` are those of its kinds of files.

    Raises FormatError for a damaged form. Ranges are checked when they are used; damaged ones raise FormatError.
    """

    __slots__ = ("_limits", "_sizes", "_sources", "forms", "kinds", "labels", "shard", "tables", "video_kinds")

    def __init__(self, dataset: Dataset, position: int) -> None:
        catalog = dataset.catalog(position)
        self.shard = shard = dataset.shards[position]
        self.kinds = kinds = catalog.kinds
        self.tables = catalog.tables
        self.labels = catalog.facts.labels
        self._limits = dataset.limits
        try:
            self.forms = forms = [parse_form(kind.form) for kind in kinds]
        except FormatError as error:
            error.at(shard.path)
            raise
        # The values in the column `kind` of files that are spans of videos
        self.video_kinds = frozenset(kind for kind, form in enumerate(forms, 1) if _is_video_span(form))
        names = [kind.source if form.reads_shard else None for kind, form in zip(kinds, forms, strict=True)]
        files = {name: shard.source(name) for name in set(names) if name is not None}
        self._sources = [None if name is None else files[name] for name in names]
        self._sizes = [-1] * len(kinds)  # of the sources, filled on first use

    def verify(self, table: Table, row: int) -> None:
        """Open and verify the file behind a row now; reads do this too, once a second.

        Raises ChangedError, NotFoundError or SourceError.
        """
        if (file := self._file(table, row)) is not None:
            file.open()

    def is_verified(self, table: Table, row: int) -> bool:
        """True if the file behind a row was verified within the last second, so `verify` would do nothing."""
        file = self._file(table, row)
        return file is None or file.is_verified

    def content(self, table: Table, row: int) -> Content:
        """The content of the file at a row.

        Raises UsageError for a directory, FormatError if the catalog is damaged.
        """
        kind = table.kind[row] - 1
        if kind < 0:
            raise UsageError("is a directory")
        try:  # both here and not in functions: each call would take a tenth of the time
            source, form = self._sources[kind], self.forms[kind]
            if source is None:
                return form.content(_NOTHING, table.inline(row), self._limits)
            offset, length = table.offset[row], table.length[row]
            self._check(kind, source, offset, length)
            extent = Extent(source, offset, length)
            return extent if form is BYTES else form.content(extent, table.inline(row), self._limits)
        except IndexError:
            raise self._damaged() from None
        except FormatError as error:
            error.at(self.shard.path)
            raise

    def present(self, stored: StoredBytes) -> Content:
        """The content made from a range of the source of a kind, in its form. Raises FormatError."""
        try:
            form, extent, detail = self._resolved(stored)
            return form.content(extent, detail, self._limits)
        except FormatError as error:
            error.at(self.shard.path)
            raise

    def known_size(self, stored: StoredBytes) -> int | None:
        """The size in bytes of what `present` makes, if this process knows the recording behind it. Never waits.

        Raises FormatError.
        """
        try:
            form, extent, detail = self._resolved(stored)
            return form.known_size(extent, detail, self._limits)
        except FormatError as error:
            error.at(self.shard.path)
            raise

    def _resolved(self, stored: StoredBytes) -> tuple[Form, Extent, bytes]:
        """The form, the bytes and the detail of a file, also if they are beside the shard."""
        form, detail = self._rendered(stored), stored.detail
        outer = form.form if isinstance(form, Rendered) else form
        if not isinstance(outer, Beside):
            return form, self._extent(stored), detail
        form = outer.form if stored.rendering is None else Rendered(outer.form, stored.rendering)
        return form, outer.extent(detail, self._limits), outer.place(detail).detail

    def _rendered(self, stored: StoredBytes) -> Form:
        form = self.forms[stored.kind]
        return form if stored.rendering is None else Rendered(form, stored.rendering)

    def _extent(self, stored: StoredBytes) -> Extent:
        kind, offset, length = stored.kind, stored.offset, stored.length
        source = self._source(kind)
        if source is None:
            return _NOTHING
        self._check(kind, source, offset, length)
        return Extent(source, offset, length)

    def size(self, stored: StoredBytes) -> int | None:
        """The size in bytes of what `present` makes; None if it cannot be known without reading. Raises FormatError."""
        try:
            return self._rendered(stored).size(stored.length, stored.detail)
        except IndexError:
            raise self._damaged() from None
        except FormatError as error:
            error.at(self.shard.path)
            raise

    def read(self, table: Table, row: int) -> bytes:
        """Read the whole file at a row.

        A plain range is read directly: making a content takes as long as reading it.
        """
        kind, length = table.kind[row] - 1, table.length[row]
        try:  # as in `content`, without calls
            source = self._sources[kind] if kind >= 0 else None
            if source is None or not length or self.forms[kind] is not BYTES:
                content = self.content(table, row)
                return bytes(content.read(0, content.size))
            offset, size = table.offset[row], self._sizes[kind]
        except IndexError:
            raise self._damaged() from None
        if not (offset >= 0 and 0 <= length <= size - offset):
            self._check(kind, source, offset, length)  # also where the size is not known yet
        return bytes(source.read(offset, length))

    def read_many(self, table: Table, rows: NDArray[np.int64]) -> list[bytes]:
        """Read the whole files at these rows, in their order. Small ranges that are close together are read at once."""
        kinds = take(table.kind, rows)
        kind = int(kinds[0]) - 1
        source = self._source(kind) if kind >= 0 else None
        if source is None or self.forms[kind] is not BYTES or (kinds != kind + 1).any():
            return [self.read(table, row) for row in rows.tolist()]
        offsets, lengths = take(table.offset, rows), take(table.length, rows)
        # The sum may overflow in a damaged catalog, so the largest offset and length are checked, too.
        worst = {offsets.argmin(), offsets.argmax(), lengths.argmin(), lengths.argmax(), (offsets + lengths).argmax()}
        for place in worst:
            self._check(kind, source, int(offsets[place]), int(lengths[place]))
        return read_ranges(source, offsets, lengths)

    def _file(self, table: Table, row: int) -> StoredFile | None:
        """The file behind a row, of the shard or beside it; None if there is none."""
        kind = table.kind[row]
        if kind == DIRECTORY:
            return None
        source, form = self._source(kind - 1), self.forms[kind - 1]
        if source is not None or form is INLINE:
            return source
        return form.beside(table.inline(row), self._limits)

    def _source(self, kind: int) -> StoredFile | None:
        """The file of the shard of which files of a kind are ranges; None if their bytes are elsewhere."""
        try:
            return self._sources[kind]
        except IndexError:
            raise self._damaged() from None

    def _check(self, kind: int, source: StoredFile, offset: int, length: int) -> None:
        size = self._sizes[kind]
        if size < 0:
            size = self._sizes[kind] = source.size
        if not (offset >= 0 and 0 <= length <= size - offset):
            raise self._damaged()

    def _damaged(self) -> FormatError:
        return FormatError("its catalog is damaged: index with --force", path=self.shard.path)

    def is_video(self, table: Table, row: int) -> bool:
        """True if the file at a row is a span of a video."""
        return table.kind[row] in self.video_kinds

    def frames(self, table: Table, row: int, fps: Fraction | None) -> FramesOf:
        """The frames of the span of a video at a row: all, or `fps` a second."""
        _, extent, detail = self._resolved(stored_at(table, row))
        return FramesOf(extent, detail, fps, self._limits)

    def timing(self, table: Table, row: int) -> Timing | None:
        """The length and rate of a recording; None if the catalog does not have them.

        A segment of a recording whose length the catalog does not have is measured. That raises FormatError, and the
        errors of sources.
        """
        kind = self.kind_of(table, row)
        if kind.rate:
            return Timing(table.frames[row], kind.rate, kind.channels or None)
        form, extent, detail = self._resolved(stored_at(table, row))
        return form.measured(extent, detail, self._limits)

    def kind_of(self, table: Table, row: int) -> FileKind:
        """The kind of the file at a row, which is not a directory. Raises FormatError if the catalog is damaged."""
        try:
            return self.kinds[table.kind[row] - 1]
        except IndexError:
            raise self._damaged() from None

    def recording_row(self, ordinal: int) -> int | None:
        """The row of a sample's recording in the table `shards`, the one that its segments are cut from; None if it has
        none. A recording whose kind has a rate is preferred, then PCM, then the order of `recordings_among`.
        """
        table = self.tables["shards"]
        rows = [row for row in table.files(ordinal) if self.may_be_recording(table, row)]

        def place(row: int) -> tuple[bool, ...]:
            is_unmeasured, is_coded = not self.kind_of(table, row).rate, not self._is_pcm(table, row)
            return is_unmeasured, is_coded, *preference(table.extension(row))

        return min(rows, key=place, default=None)

    def may_be_recording(self, table: Table, row: int) -> bool:
        """True if the catalog has the rate and length of the file at a row, or it is of a coding that can be cut."""
        if self.kind_of(table, row).rate or self._is_pcm(table, row):
            return True
        return self._form(table, row).is_stored and can_be_cut(table.extension(row))

    def _is_pcm(self, table: Table, row: int) -> bool:
        return isinstance(self._form(table, row), Pcm)

    def recording(self, table: Table, row: int) -> StoredRecording:
        """The recording at a row. Blocks while its bytes are read to know what it is. Raises as `info_of`."""
        known = self.known_recording(table, row)
        try:
            if known is not None:
                return known
            stored = self._stored(table, row)
            return self._described(table, row, stored, info_of(stored, self._limits))
        except FormatError as error:
            error.at(self.shard.path)
            raise

    def known_recording(self, table: Table, row: int) -> StoredRecording | None:
        """The recording at a row, if this process knows without reading what it is. Never waits."""
        if self._is_pcm(table, row):
            return StoredRecording.of(self._field(table, row))
        form, extent, detail = self._resolved(stored_at(table, row))
        stored = form.known_stored(extent, detail, self._limits)
        info = None if stored is None else known_info(stored)
        return None if stored is None or info is None else self._described(table, row, stored, info)

    def _described(self, table: Table, row: int, stored: Extent, info: MediaInfo) -> StoredRecording:
        """A recording of this description. Its segments have the rate and length of the catalog, and so do slices.

        That of a cell is described as a range of the cell's bytes.
        """
        field, rate = self._field(table, row), self.kind_of(table, row).rate
        if _is_cell(field.form):
            field = replace(field, offset=0, size=stored.size, form=BYTES, detail=b"")
        recording = StoredRecording.measured(field, _audio(info))
        is_pcm = isinstance(recording.field.form, Pcm)
        return recording if is_pcm or not rate else replace(recording, rate=rate, length=table.frames[row])

    def piece(self, table: Table, row: int, piece: Field) -> Content:
        """The content of a piece of the recording at a row. Raises FormatError. May wait for the place of a cell."""
        if _is_cell(self._form(table, row)):
            cell = self._stored(table, row)
            if piece.offset + piece.size > cell.size:
                raise FormatError("a recording in a cell is shorter than its header says", path=self.shard.path)
            extent = Extent(cell.source, cell.offset + piece.offset, piece.size)
        else:
            extent = self._extent(StoredBytes(table.kind[row] - 1, piece.offset, piece.size, piece.detail))
        return piece.form.content(extent, piece.detail, self._limits)

    def _stored(self, table: Table, row: int) -> Extent:
        """The bytes of a recording that is stored as it is. May wait."""
        form, extent, detail = self._resolved(stored_at(table, row))
        return form.stored(extent, detail, self._limits)

    def _form(self, table: Table, row: int) -> Form:
        try:
            return self.forms[table.kind[row] - 1]
        except IndexError:
            raise self._damaged() from None

    def _field(self, table: Table, row: int) -> Field:
        kind, extension = self.kind_of(table, row), table.extension(row)
        form, detail = self._form(table, row), table.inline(row)
        return Field(kind.field, kind.source, table.offset[row], table.length[row], form, extension, detail=detail)


def _audio(info: MediaInfo) -> AudioInfo:
    pcm = info.offset if info.is_plain_pcm else 0
    return AudioInfo(info.rate, info.channels, info.frames, info.default_format, pcm)


def _is_cell(form: Form) -> bool:
    """True for files of which only their form knows the place."""
    return form.is_stored and form is not BYTES and not isinstance(form, Beside)


def _is_video_span(form: Form) -> bool:
    return isinstance(form.form if isinstance(form, Beside) else form, VideoSpan)
