"""An open shard of a dataset: its mapped tables, its files, and the forms that make contents from them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from touchfs.catalog.catalog import FileKind
from touchfs.catalog.columns import take
from touchfs.catalog.table import DIRECTORY, Table
from touchfs.dataset import Dataset
from touchfs.errors import FormatError, UsageError
from touchfs.extent import Content, Extent, Memory
from touchfs.form.plain import BYTES
from touchfs.form.table import parse_form
from touchfs.source.ranges import read_ranges
from touchfs.source.store import StoredFile

# Each open shard is a memory mapping, and a process may have at most 65,530 (vm.max_map_count).
SHARDS_KEPT = 8192
_NOTHING = Extent(Memory(b""), 0, 0)


class OpenShard:
    """Open the shard at a position of a dataset. `forms` are those of its kinds of files.

    Raises FormatError for a damaged form. Ranges are checked when they are used; damaged ones raise FormatError.
    """

    __slots__ = ("_limits", "_sizes", "_sources", "forms", "kinds", "shard", "tables")

    def __init__(self, dataset: Dataset, position: int) -> None:
        catalog = dataset.catalog(position)
        self.shard = shard = dataset.shards[position]
        self.kinds = kinds = catalog.kinds
        self.tables = catalog.tables
        self._limits = dataset.limits
        try:
            self.forms = forms = [parse_form(kind.form) for kind in kinds]
        except FormatError as error:
            error.at(shard.path)
            raise
        names = [kind.source if form.reads_shard else None for kind, form in zip(kinds, forms, strict=True)]
        files = {name: shard.source(name) for name in set(names) if name is not None}
        self._sources = [None if name is None else files[name] for name in names]
        self._sizes = [-1] * len(kinds)  # of the sources, filled on first use

    def verify(self, table: Table, row: int) -> None:
        """Open and verify the file behind a row now; reads do this too, once a second.

        Raises ChangedError, NotFoundError or SourceError.
        """
        kind = table.kind[row]
        source = None if kind == DIRECTORY else self._source(kind - 1)
        if source is not None:
            source.open()

    def is_verified(self, table: Table, row: int) -> bool:
        """True if the file behind a row was verified within the last second, so `verify` would do nothing."""
        kind = table.kind[row]
        source = None if kind == DIRECTORY else self._source(kind - 1)
        return source is None or source.is_verified

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

    def present(self, kind: int, offset: int, length: int, detail: bytes) -> Content:
        """The content made from a range of the source of a kind, in its form. Raises FormatError."""
        source, extent = self._source(kind), _NOTHING
        if source is not None:
            self._check(kind, source, offset, length)
            extent = Extent(source, offset, length)
        try:
            return self.forms[kind].content(extent, detail, self._limits)
        except FormatError as error:
            error.at(self.shard.path)
            raise

    def size(self, kind: int, length: int, detail: bytes) -> int:
        """The size in bytes of what `present` makes. Raises FormatError."""
        try:
            return self.forms[kind].size(length, detail)
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

    def _source(self, kind: int) -> StoredFile | None:
        """The file of which files of a kind are ranges; None if their bytes are in the catalog."""
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

    def seconds(self, table: Table, row: int) -> float | None:
        """The duration of a recording by the catalog, in seconds; None if the catalog does not have it."""
        kind = self.kind_of(table, row)
        if kind.rate:
            return table.frames[row] / kind.rate
        timing = self.forms[table.kind[row] - 1].timing(table.length[row], table.inline(row))
        return None if timing is None else timing.frames / timing.rate

    def kind_of(self, table: Table, row: int) -> FileKind:
        """The kind of the file at a row, which is not a directory. Raises FormatError if the catalog is damaged."""
        try:
            return self.kinds[table.kind[row] - 1]
        except IndexError:
            raise self._damaged() from None
