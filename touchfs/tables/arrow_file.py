"""Open Arrow IPC files: their rows and columns, of which only those that are asked for are read (`batch_stream`).

The last `FILES_KEPT` files are kept by each process, and batches of rows (`kept_values`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from touchfs.errors import FormatError
from touchfs.extent import drive
from touchfs.extras import load_pyarrow
from touchfs.format.arrow.batch import BatchLayout, batch_layout, count_rows
from touchfs.format.arrow.file import IpcFile, parse_arrow
from touchfs.limits import Limits
from touchfs.tables.batch_stream import BatchStreams
from touchfs.tables.field_paths import Path, below, wanted_columns, without
from touchfs.tables.json_values import json_values, row_lines
from touchfs.tables.kept_values import BATCHES
from touchfs.tables.open_files import OpenTableFiles
from touchfs.tables.pyarrow_errors import pyarrow_errors
from touchfs.tables.value_sizes import total_size, viewed_size

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
        """The number of rows of all batches."""
        return int(self.starts[-1])

    @property
    def batches(self) -> int:
        """The number of batches."""
        return len(self.ipc.batches)

    @cached_property
    def schema(self) -> pyarrow.Schema:
        """The schema. Raises MissingExtraError without pyarrow."""
        arrow = load_pyarrow()
        offset, size = self._streams.schema_range
        try:
            return arrow.ipc.read_schema(arrow.py_buffer(self._source.read(offset, size)))
        except (arrow.ArrowException, OSError) as error:
            raise FormatError(f"the Arrow schema cannot be read: {error}", offset=offset) from error

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
        return self._read(batch, numbers, frozenset())

    def read_values(self, batch: int, path: Path) -> list[Any]:
        """The values of a column of a batch, or of a child of structs, as Python has them; null below a null."""
        values = self.read_array(batch, path)
        with pyarrow_errors("an Arrow batch", self.ipc.batches[batch].offset):
            return cast("list[Any]", values.to_pylist())

    def read_array(self, batch: int, path: Path) -> pyarrow.Array:
        """The values of a column of a batch, or of a child of structs; null below a null."""
        field = self.ipc.schema.fields[path[0]]
        # All fields beside the path: neither above it, nor at it or below it.
        beside = [each for each, _ in below(path[:1], field) if each != path[: len(each)] and each[: len(path)] != path]
        found = self._read(batch, [path[0]], frozenset(beside))
        with pyarrow_errors("an Arrow batch", self.ipc.batches[batch].offset):
            import pyarrow.compute

            column = found.column(0)
            for _ in path[1:]:
                column = pyarrow.compute.struct_field(column, [0])
            self._check_values([column], batch)
            return column

    def integers(self, column: int) -> NDArray[np.int64]:
        """The values of a column of integers in all batches, −1 for nulls."""
        parts = [np.zeros(0, np.int64)]
        for number in range(self.batches):
            found = self._read(number, [column], frozenset())
            with pyarrow_errors("an Arrow batch", self.ipc.batches[number].offset):
                values = found.column(0).fill_null(-1) if found.column(0).null_count else found.column(0)
                parts.append(values.to_numpy(zero_copy_only=False).astype(np.int64))
        return np.concatenate(parts)

    def json_column(self, batch: int, column: int, left_out: Collection[Path] = ()) -> Iterator[list[Any]]:
        """The values of a column of a batch as `json.dumps` takes them, without the cells at some paths.

        Yields those of `ROWS_AT_ONCE` rows at a time.
        """
        values = self._read(batch, [column], frozenset(left_out)).column(0)
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
        found = BATCHES.get(key)
        if found is None:
            found = self._read(batch, wanted_columns(self.ipc.schema, left_out), left_out)
            BATCHES.add(key, found)
        return found

    def _check_values(self, arrays: Sequence[pyarrow.Array], batch: int) -> None:
        """Raise FormatError for more values than fit in memory."""
        if sum(map(total_size, arrays)) > self._limits.decoded:
            raise self._streams.too_large(self.ipc.batches[batch])

    def _read(self, batch: int, columns: Sequence[int], left_out: frozenset[Path]) -> pyarrow.RecordBatch:
        arrow = load_pyarrow()
        layout = self.layout(batch)
        message = self._streams.assemble(layout, columns, left_out)
        options = arrow.ipc.IpcReadOptions(included_fields=list(columns), use_threads=False)
        with pyarrow_errors("an Arrow batch", layout.place.offset):
            if columns:
                found = arrow.ipc.open_stream(arrow.py_buffer(message), options=options).read_next_batch()
            else:  # pyarrow takes no columns for all columns
                found = arrow.RecordBatch.from_struct_array(arrow.array([{}] * layout.rows, arrow.struct([])))
            named = [
                (self.ipc.schema.fields[i].name, kept)
                for i, column in zip(columns, found.columns, strict=True)
                if (kept := without(column, (i,), left_out)) is not None
            ]
            if len(named) < len(columns) or left_out:
                names, arrays = [name for name, _ in named], [array for _, array in named]
                found = arrow.RecordBatch.from_arrays(arrays, names) if named else found.select([])
            if sum(map(viewed_size, found.columns)) > self._limits.decoded:
                raise self._streams.too_large(layout.place)
            found.validate(full=True)
        return found


_files = OpenTableFiles(ArrowFile)


def open_arrow(source: StoredFile, limits: Limits) -> ArrowFile:
    """The Arrow file or stream in a source, which this process may have open.

    Raises FormatError, MissingExtraError for a compressed one without pyarrow, and the errors of sources.
    """
    return _files.get(source, limits)
