"""An open shard of a dataset: its mapped tables, its files, and the forms that make contents from them."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from touchfs.catalog.catalog import FileKind
from touchfs.catalog.columns import as_array, take
from touchfs.catalog.table import DIRECTORY, Table
from touchfs.core.errors import FormatError, UsageError
from touchfs.core.extent import Content, Extent, Memory
from touchfs.core.measure import TOKENS, UNKNOWN
from touchfs.dataset import Dataset
from touchfs.dataset.shard import Shard
from touchfs.form.arrays import Npy
from touchfs.form.base import Form, Timing
from touchfs.form.beside import Beside
from touchfs.form.plain import BYTES, INLINE
from touchfs.form.recordings import Pcm
from touchfs.form.renderings import Rendered
from touchfs.form.video.frames import FramesOf
from touchfs.form.video.video_span import VideoSpan
from touchfs.media.slices.rendering import Rendering
from touchfs.registry.forms import parse_form
from touchfs.segments.packed_times import pack_times
from touchfs.segments.times import Times
from touchfs.shard.sample import Field
from touchfs.source.ranges import read_ranges
from touchfs.source.store import StoredFile

# Each open shard is a memory mapping, and a process may have at most 65,530 (vm.max_map_count).
SHARDS_KEPT = 8192
# From the begin to the end.
WHOLE_VIDEO = pack_times(Times(0))
_NOTHING = Extent(Memory(b""), 0, 0)


class StoredBytes(NamedTuple):
    """A range of the source of a kind of file, what its form needs besides, and how the recording is rendered."""

    kind: int
    offset: int
    length: int
    detail: bytes
    rendering: Rendering | None = None


def stored_at(table: Table, row: int) -> StoredBytes:
    return StoredBytes(table.kind[row] - 1, table.offset[row], table.length[row], table.inline(row))


class OpenShard:
    """Open a shard of a dataset. `forms` are those of its kinds of files.

    Raises FormatError for a damaged form. Ranges are checked when they are used; damaged ones raise FormatError.
    """

    __slots__ = ("_sizes", "_sources", "forms", "kinds", "labels", "limits", "shard", "tables", "video_kinds")

    def __init__(self, dataset: Dataset, shard: Shard) -> None:
        catalog = dataset.catalog_of(shard)
        self.shard = shard
        self.kinds = kinds = catalog.kinds
        self.tables = catalog.tables
        self.labels = catalog.facts.labels
        self.limits = dataset.limits
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

    def close(self) -> None:
        """Close its files, which are opened again when they are read."""
        for source in self._sources:
            if source is not None:
                source.close()

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
                return form.content(_NOTHING, table.inline(row), self.limits)
            offset, length = table.offset[row], table.length[row]
            self._check(kind, source, offset, length)
            extent = Extent(source, offset, length)
            return extent if form is BYTES else form.content(extent, table.inline(row), self.limits)
        except IndexError:
            raise self._damaged() from None
        except FormatError as error:
            error.at(self.shard.path)
            raise

    def present(self, stored: StoredBytes) -> Content:
        """The content made from a range of the source of a kind, in its form. Raises FormatError."""
        try:
            form, extent, detail = self.resolved(stored)
            return form.content(extent, detail, self.limits)
        except FormatError as error:
            error.at(self.shard.path)
            raise

    def known_size(self, stored: StoredBytes) -> int | None:
        """The size in bytes of what `present` makes, if this process knows the recording behind it. Never waits.

        Raises FormatError.
        """
        try:
            form, extent, detail = self.resolved(stored)
            return form.known_size(extent, detail, self.limits)
        except FormatError as error:
            error.at(self.shard.path)
            raise

    def resolved(self, stored: StoredBytes) -> tuple[Form, Extent, bytes]:
        """The form, the bytes and the detail of a file, also if they are beside the shard."""
        form, detail = self._rendered(stored), stored.detail
        outer = form.form if isinstance(form, Rendered) else form
        if not isinstance(outer, Beside):
            return form, self.extent(stored), detail
        form = outer.form if stored.rendering is None else Rendered(outer.form, stored.rendering)
        return form, outer.extent(detail, self.limits), outer.place(detail).detail

    def _rendered(self, stored: StoredBytes) -> Form:
        form = self.forms[stored.kind]
        return form if stored.rendering is None else Rendered(form, stored.rendering)

    def extent(self, stored: StoredBytes) -> Extent:
        """A range of the source of a kind, of no bytes if they are elsewhere. Raises FormatError if it is not there."""
        kind, offset, length = stored.kind, stored.offset, stored.length
        source = self.source(kind)
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
            if source is None or (not length and self.forms[kind] is BYTES):
                content = self.content(table, row)
                return bytes(content.read(0, content.size))
            offset, size, form = table.offset[row], self._sizes[kind], self.forms[kind]
            detail = b"" if form is BYTES else table.inline(row)
        except IndexError:
            raise self._damaged() from None
        if not (offset >= 0 and 0 <= length <= size - offset):
            self._check(kind, source, offset, length)  # also where the size is not known yet
        if form is BYTES:
            return bytes(source.read(offset, length))
        return bytes(form.whole(Extent(source, offset, length), detail, self.limits))

    def read_many(self, table: Table, rows: NDArray[np.int64]) -> list[bytes]:
        """Read the whole files at these rows, in their order. Small ranges that are close together are read at once."""
        kinds = take(table.kind, rows)
        kind = int(kinds[0]) - 1
        source = self.source(kind) if kind >= 0 else None
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
        source, form = self.source(kind - 1), self.forms[kind - 1]
        if source is not None or form is INLINE:
            return source
        return form.beside(table.inline(row), self.limits)

    def source(self, kind: int) -> StoredFile | None:
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
        return table.kind[row] in self.video_kinds

    def frames(self, table: Table, row: int, fps: Fraction | None) -> FramesOf:
        """The frames of the span of a video at a row, or of a whole video: all, or `fps` a second."""
        _, extent, detail = self.resolved(stored_at(table, row))
        return FramesOf(extent, detail if self.is_video(table, row) else WHOLE_VIDEO, fps, self.limits)

    def timing(self, table: Table, row: int) -> Timing | None:
        """The length and rate of a recording; None if the catalog does not have them.

        A segment of a recording whose length the catalog does not have is measured. That raises FormatError, and the
        errors of sources.
        """
        kind = self.kind_of(table, row)
        if kind.rate:
            return Timing(table.frames[row], kind.rate, kind.channels or None)
        form, extent, detail = self.resolved(stored_at(table, row))
        return form.measured(extent, detail, self.limits)

    def lengths(self, table: Table, measure: str) -> NDArray[np.int64]:
        """The length of the file at each row by the catalog alone; `UNKNOWN` where it has none. Reads nothing else."""
        found, kinds = np.full(table.rows, UNKNOWN, np.int64), as_array(table.kind)
        for number, (kind, form) in enumerate(zip(self.kinds, self.forms, strict=True), 1):
            rows = np.flatnonzero(kinds == number)
            if measure == TOKENS:
                if isinstance(form, Npy):
                    found[rows] = take(table.length, rows) // form.item_size
            elif kind.rate:
                found[rows] = _microseconds(take(table.frames, rows), kind.rate)
            elif isinstance(form, Pcm):
                found[rows] = _microseconds(take(table.length, rows) // form.frame_size, form.rate)
            elif type(form).timing is not Form.timing:
                for row in rows.tolist():
                    if (timing := form.timing(table.length[row], table.inline(row))) is not None:
                        found[row] = _microseconds(np.int64(timing.frames), timing.rate)
        return found

    def kind_of(self, table: Table, row: int) -> FileKind:
        """The kind of the file at a row, which is not a directory. Raises FormatError if the catalog is damaged."""
        try:
            return self.kinds[table.kind[row] - 1]
        except IndexError:
            raise self._damaged() from None

    def form(self, table: Table, row: int) -> Form:
        """The form of the file at a row, which is not a directory. Raises FormatError if the catalog is damaged."""
        try:
            return self.forms[table.kind[row] - 1]
        except IndexError:
            raise self._damaged() from None

    def field(self, table: Table, row: int) -> Field:
        """The file at a row as a field of its sample. Raises as `form`."""
        kind, extension = self.kind_of(table, row), table.extension(row)
        form, detail = self.form(table, row), table.inline(row)
        return Field(kind.field, kind.source, table.offset[row], table.length[row], form, extension, detail=detail)


def _microseconds(frames: Any, rate: int) -> Any:
    return np.rint(frames / rate * 1e6).astype(np.int64)


def _is_video_span(form: Form) -> bool:
    return isinstance(form.form if isinstance(form, Beside) else form, VideoSpan)
