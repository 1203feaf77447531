"""Open Arrow IPC files: their rows and columns, of which only those that are asked for are read (`batch_stream`).

The last `FILES_KEPT` files are kept by each process, and batches of rows (`kept_values`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from touchfs.core.errors import FormatError
from touchfs.core.extent import drive
from touchfs.core.extras import load_pyarrow
from touchfs.format.arrow.batch import BatchLayout, batch_layout, count_rows
from touchfs.format.arrow.file import IpcFile, parse_arrow
from touchfs.limits import Limits
from touchfs.tables.arrow.batch_stream import BatchStreams
from touchfs.tables.values.field_paths import Path, beside_path, values_in_lists, wanted_columns, without
from touchfs.tables.values.json_values import json_values, row_lines
from touchfs.tables.values.kept_values import BATCHES
from touchfs.tables.values.open_files import OpenTableFiles
from touchfs.tables.values.pyarrow_errors import pyarrow_errors
from touchfs.tables.values.record_batch import record_batch
from touchfs.tables.values.value_sizes import JSON_COPIES, total_size, viewed_size

if TYPE_CHECKING:
    import pyarrow

    from touchfs.source.store import StoredFile

# The rows of a column whose values are made at a time
ROWS_AT_ONCE = 256


class ArrowFile:
    """The rows and columns of an Arrow IPC file or stream. Safe for any number of threads.

    Raises FormatError for a damaged file, and the errors of its source.
    """

    def __init__(self, source: StoredFile, limits: Limits) -> None:
        self._source = source
        self._limits = limits
        source.open()
        self.ipc: IpcFile = drive(parse_arrow(source.size), source)
        self._streams = BatchStreams(source, self.ipc, limits)
        self.starts = count_rows(drive(batch_layout(self.ipc.schema, place), source) for place in self.ipc.batches)

    @property
    def rows(self) -> int:
        return int(self.starts[-1])

    @property
    def batches(self) -> int:
        return len(self.ipc.batches)

    @cached_property
    def schema(self) -> pyarrow.Schema:
        """The schema. Raises MissingExtraError without pyarrow."""
        arrow = load_pyarrow()
        try:
            return arrow.ipc.read_schema(arrow.py_buffer(self.ipc.schema_message))
        except (arrow.ArrowException, OSError) as error:
            raise FormatError(f"the Arrow schema cannot be read: {error}") from error

    def locate(self, row: int) -> tuple[int, int]:
        """The batch that has a row, and the row in it. Raises IndexError."""
        if not 0 <= row < self.rows:
            raise IndexError(f"row {row} of {self.rows}")
        batch = int(self.starts.searchsorted(row, "right")) - 1
        return batch, row - int(self.starts[batch])

    def layout(self, batch: int) -> BatchLayout:
        """The byte ranges of the buffers of a batch in the file."""
        return drive(batch_layout(self.ipc.schema, self.ipc.batches[batch]), self._source)

    def read_batch(self, batch: int, columns: Sequence[str] | None = None) -> pyarrow.RecordBatch:
        """Read a batch, or some columns of it, in the order of the schema. It is checked and may be used freely."""
        fields = self.ipc.schema.fields
        if columns is not None and (missing := set(columns).difference(field.name for field in fields)):
            raise FormatError(f"the table has no column {min(missing)!r}")
        numbers = [i for i, field in enumerate(fields) if columns is None or field.name in columns]
        return self._read(batch, numbers)

    def read_values(self, batch: int, path: Path) -> list[Any]:
        """The values of a column of a batch, or of a child of structs, as Python has them; null below a null."""
        values = self.read_array(batch, path)
        with pyarrow_errors("an Arrow batch", self.ipc.batches[batch].offset):
            return cast("list[Any]", values.to_pylist())

    def read_lists(self, batch: int, path: Path) -> list[list[Any] | None]:
        """The values at a path below a column of lists, as Python has them, in a list for each row of a batch."""
        beside = beside_path(self.ipc.schema, path)
        rows = self._load(batch, path[:1], beside)
        _, (column,) = self._without(rows, batch, path[:1], beside)
        with pyarrow_errors("an Arrow batch", self.ipc.batches[batch].offset):
            column.validate(full=True)
            return values_in_lists(column, len(path) - 2)

    def read_array(self, batch: int, path: Path) -> pyarrow.Array:
        """The values of a column of a batch, or of a child of structs; null below a null, and where one is invalid."""
        load_pyarrow()  # says what to install, before others import it
        from touchfs.tables.values.sound import check_structure, valid_or_null

        beside = beside_path(self.ipc.schema, path)
        with pyarrow_errors("an Arrow batch", self.ipc.batches[batch].offset):
            import pyarrow.compute

            rows = self._load(batch, path[:1], beside)
            _, (column,) = self._without(rows, batch, path[:1], beside)
            check_structure(column)
            for _ in path[1:]:
                column = pyarrow.compute.struct_field(column, [0])
            self._check_values([column], batch)
            return valid_or_null(column)

    def integers(self, column: int) -> NDArray[np.int64]:
        """The values of a column of integers in all batches, −1 for nulls."""
        parts = [np.zeros(0, np.int64)]
        for number in range(self.batches):
            found = self._read(number, [column])
            with pyarrow_errors("an Arrow batch", self.ipc.batches[number].offset):
                values = found.column(0).fill_null(-1) if found.column(0).null_count else found.column(0)
                parts.append(values.to_numpy(zero_copy_only=False).astype(np.int64))
        return np.concatenate(parts)

    def json_column(self, batch: int, column: int, left_out: Collection[Path] = ()) -> Iterator[list[Any]]:
        """The values of a column of a batch as `json.dumps` takes them, without the cells at some paths.

        Yields those of `ROWS_AT_ONCE` rows at a time.
        """
        values = self._read_sound(batch, [column], frozenset(left_out)).column(0)
        for first in range(0, len(values), ROWS_AT_ONCE):
            part = values.slice(first, ROWS_AT_ONCE)
            with pyarrow_errors("an Arrow batch", self.ipc.batches[batch].offset):
                self._check_values([part], batch)
                made = json_values(part)
            yield made

    def json_rows(self, first: int, count: int, left_out: Collection[Path] = ()) -> list[bytes]:
        """The rows from `first` on as JSON lines, without the cells at some paths; fewer at the end."""
        texts: list[bytes] = []
        row, end = first, min(first + count, self.rows)
        while row < end:
            number, start = self.locate(row)
            batch = self._rows_of(number, frozenset(left_out)).slice(start, end - row)
            with pyarrow_errors("an Arrow batch", self.ipc.batches[number].offset):
                self._check_values(batch.columns, number)
                texts += row_lines(batch.schema.names, batch.columns, len(batch))
            row += len(batch)
        return texts

    def _rows_of(self, batch: int, left_out: frozenset[Path]) -> pyarrow.RecordBatch:
        """All columns of a batch without the cells at some paths, from the batches that are kept."""
        key = self._source.identity or id(self), batch, left_out
        columns = wanted_columns(self.ipc.schema, left_out)
        return BATCHES.get(key, lambda: self._read_sound(batch, columns, left_out))

    def _check_values(self, arrays: Sequence[pyarrow.Array], batch: int) -> None:
        """Raise FormatError for values that do not fit in memory while they become JSON."""
        if JSON_COPIES * sum(map(total_size, arrays)) > self._limits.decoded:
            raise self._streams.too_large(self.ipc.batches[batch])

    def _read(self, batch: int, columns: Sequence[int]) -> pyarrow.RecordBatch:
        with pyarrow_errors("an Arrow batch", self.ipc.batches[batch].offset):
            rows = self._load(batch, columns, frozenset())
            found = record_batch(*self._without(rows, batch, columns, frozenset()), len(rows))
            found.validate(full=True)
        return found

    def _read_sound(self, batch: int, columns: Sequence[int], left_out: frozenset[Path]) -> pyarrow.RecordBatch:
        """Some columns of a batch as `json_values` takes them, without the cells at some paths."""
        with pyarrow_errors("an Arrow batch", self.ipc.batches[batch].offset):
            from touchfs.tables.values.leaf_types import readable
            from touchfs.tables.values.sound import sound

            rows = self._load(batch, columns, left_out)
            names, arrays = self._without(readable(rows), batch, columns, left_out)
            return record_batch(names, [*map(sound, arrays)], len(rows))

    def _load(self, batch: int, columns: Sequence[int], left_out: frozenset[Path]) -> pyarrow.StructArray:
        """Some columns of a batch. They are not checked, and may be of types without a class; cells at some paths are
        not read.
        """
        arrow = load_pyarrow()
        layout = self.layout(batch)
        message = self._streams.assemble(layout, columns, left_out)
        if not columns:  # pyarrow takes no columns for all columns
            return arrow.array([{}] * layout.rows, arrow.struct([]))
        options = arrow.ipc.IpcReadOptions(included_fields=list(columns), use_threads=False)
        return arrow.ipc.open_stream(arrow.py_buffer(message), options=options).read_next_batch().to_struct_array()

    def _without(
        self, rows: pyarrow.StructArray, batch: int, columns: Sequence[int], left_out: frozenset[Path]
    ) -> tuple[list[str], list[pyarrow.Array]]:
        """The names and values of loaded columns, without the cells at some paths. Raises FormatError if too large."""
        names, arrays = [], []
        for i, number in enumerate(columns):
            kept = without(rows.field(i), (number,), left_out)
            if kept is not None:
                names.append(self.ipc.schema.fields[number].name)
                arrays.append(kept)
        if sum(map(viewed_size, arrays)) > self._limits.decoded:
            raise self._streams.too_large(self.ipc.batches[batch])
        return names, arrays


_files = OpenTableFiles(ArrowFile)


def open_arrow(source: StoredFile, limits: Limits) -> ArrowFile:
    """The Arrow file or stream in a source, which this process may have open.

    Raises FormatError, MissingExtraError for a compressed one without pyarrow, and the errors of sources.
    """
    return _files.get(source, limits)
