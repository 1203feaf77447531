"""The batches of an Arrow file, which is mapped: in the file format, or in the stream format of Hugging Face.

Opening reads the footer and the headers of the batches, no data. Data of a batch that is not compressed is never
copied, and a compressed batch is decoded when a row of it is read, and kept in the `BatchCache`.
"""

from __future__ import annotations

import mmap
import os
import stat
from collections.abc import Callable, Iterable

import pyarrow as pa

from touchfs.caches.backends.arrow.batch_cache import BatchCache, CachedBatch
from touchfs.caches.backends.arrow.batches import Batches
from touchfs.caches.backends.arrow.mapped_cells import MappedCells
from touchfs.core.errors import ChangedError, FormatError, map_os_errors
from touchfs.core.extent import Buffer, drive
from touchfs.format.arrow.batch import batch_layout
from touchfs.format.arrow.file import IpcFile, parse_arrow
from touchfs.source.fingerprint import Fingerprint
from touchfs.source.mapped import advise, map_file


class IpcBatches(Batches):
    """The batches of the file at `place`, which stays mapped as long as this object or data of it exists.

    `path` is `str` of the place, for errors. Raises FormatError, NotFoundError and SourceError, and ChangedError if it
    is another file than that of the fingerprint.
    """

    def __init__(
        self, place: str | os.PathLike[str], fingerprint: Fingerprint | None, cache: BatchCache, number: int
    ) -> None:
        path = self.path = str(place)
        # Rows are read in any order from the first mapping, and ranges of rows in sequence from the second.
        scattered, self._view = _map_twice(place, fingerprint)
        advise(scattered, mmap.MADV_RANDOM)
        try:
            parsed = drive(parse_arrow(len(scattered)), _Mapped(scattered))
            layouts = [drive(batch_layout(parsed.schema, place), _Mapped(scattered)) for place in parsed.batches]
        except FormatError as error:
            raise error.at(path) from None
        schema, self._read = _open(path, self._view, parsed)
        _, read_scattered = _open(path, scattered, parsed)
        is_compressed = any(layout.codec for layout in layouts)
        cells = None if is_compressed else MappedCells(path, scattered, schema, layouts)

        def load(number: int) -> CachedBatch:
            with map_arrow_errors(path):
                batch = read_scattered(number)
                columns = {i: column for i, column in enumerate(batch.columns) if cells is None or i not in cells.types}
                # pyarrow does not check offsets when it reads a cell, so damaged ones would crash the process.
                for column in columns.values():
                    column.validate(full=True)
            return CachedBatch(columns, _size_outside(scattered, columns.values()))

        with map_arrow_errors(path):
            _decode_names(schema)
            super().__init__(schema, [layout.rows for layout in layouts], load, cache, number, cells)

    def batch(self, number: int, start: int = 0, stop: int | None = None) -> pa.RecordBatch:
        """See `Batches.batch`. Raises FormatError."""
        with map_arrow_errors(self.path):
            batch = self._read(number)
            if len(batch) != self.starts[number + 1] - self.starts[number]:
                raise FormatError(f"batch {number} has not as many rows as its header says", path=self.path)
            if start or stop is not None:
                batch = batch[start:stop]
            # Offsets and texts, but no other data. pyarrow would crash at damaged ones.
            batch.validate(full=True)
        return batch


def _size_outside(view: memoryview, columns: Iterable[pa.Array]) -> int:
    """Return how many bytes of columns are not those of the mapped file, so were decoded."""
    start = pa.py_buffer(view).address
    mapped = range(start, start + len(view))
    buffers = (buffer for column in columns for buffer in column.buffers() if buffer is not None)
    return sum(buffer.size for buffer in buffers if buffer.address not in mapped)


def _decode_names(fields: Iterable[pa.Field]) -> None:
    """Decode all names, also nested ones: one that is not UTF-8 would otherwise fail at the first row."""
    for field in fields:
        _ = field.name
        _decode_names(field.type.field(i) for i in range(field.type.num_fields))


class _Mapped:
    """A mapped file as a source of a codec."""

    def __init__(self, view: memoryview) -> None:
        self._view = view

    def read(self, offset: int, length: int) -> Buffer:
        return self._view[offset : offset + length]

    read_nowait = read


def _map_twice(place: str | os.PathLike[str], fingerprint: Fingerprint | None) -> tuple[memoryview, memoryview]:
    path = str(place)
    with map_os_errors(path):
        descriptor = os.open(place, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise FormatError("is not a regular file", path=path)
            if fingerprint is not None and not fingerprint.matches(Fingerprint.of(os.fstat(descriptor))):
                raise ChangedError("it was replaced since the backend was made: open the cache again", path=path)
            return map_file(descriptor), map_file(descriptor)
        finally:
            os.close(descriptor)


def _open(path: str, view: memoryview, parsed: IpcFile) -> tuple[pa.Schema, Callable[[int], pa.RecordBatch]]:
    buffer = pa.py_buffer(view)
    with map_arrow_errors(path):
        # Not `pa.memory_map`, which has the kernel read each batch at once that is only looked up.
        if not parsed.is_stream:
            reader = pa.ipc.open_file(pa.BufferReader(buffer))
            return reader.schema, reader.get_batch
        schema = pa.ipc.open_stream(pa.BufferReader(buffer)).schema
    if parsed.dictionaries:
        raise FormatError("it is an Arrow stream with dictionaries: convert it to the Arrow file format", path=path)

    def read(number: int) -> pa.RecordBatch:
        offset, metadata_size, body_size = parsed.batches[number]
        message = pa.ipc.read_message(buffer.slice(offset, metadata_size + body_size))
        return pa.ipc.read_record_batch(message, schema)

    return schema, read


class map_arrow_errors:
    """Raise FormatError for an error of pyarrow in the block: the file is damaged, or not what it claims to be."""

    __slots__ = ("_path",)

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: object) -> None:
        # pyarrow raises OSError for damaged metadata, and UnicodeDecodeError for names that are no text.
        if isinstance(error, pa.ArrowException | OSError | UnicodeDecodeError):
            reason = " ".join(str(error).split())
            raise FormatError(f"its Arrow data cannot be read: {reason}", path=self._path) from error
