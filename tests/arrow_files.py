"""Arrow files of the tests: written by pyarrow, read by our codecs from a source that checks each read."""

import io
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from checked_source import CheckedSource

from touchfs.core.extent import Buffer, drive
from touchfs.format.arrow.batch import batch_layout
from touchfs.format.arrow.cells import IN_FILE, Cells, cells, has_cells
from touchfs.format.arrow.column import column_parts, numbers_of
from touchfs.format.arrow.compression import decompressed_range
from touchfs.format.arrow.file import IpcFile, parse_arrow
from touchfs.format.arrow.metadata import Kind
from touchfs.format.arrow.schema import IpcField

Write = Callable[..., bytes]


def write_file(batches: list[pa.RecordBatch], **options: Any) -> bytes:
    return _write(pa.ipc.new_file, batches, options)


def write_stream(batches: list[pa.RecordBatch], **options: Any) -> bytes:
    return _write(pa.ipc.new_stream, batches, options)


def _write(make: Any, batches: list[pa.RecordBatch], options: dict[str, Any]) -> bytes:
    made = io.BytesIO()
    with make(made, batches[0].schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return made.getvalue()


def parse(data: bytes) -> IpcFile:
    return drive(parse_arrow(len(data)), CheckedSource(data))


def values(data: bytes, found: Cells) -> list[bytes | None]:
    """The bytes of cells; None for null."""
    made: list[bytes | None] = []
    for row, (offset, length, valid) in enumerate(zip(found.offsets, found.lengths, found.valid, strict=True)):
        held: Buffer = data
        if found.buffers is not None and found.buffers[row] != IN_FILE:
            assert found.ranges is not None and found.codec is not None
            start, size = found.ranges[found.buffers[row]]
            held = decompressed_range(found.codec, data[start : start + size], 0, 10**6, 10**6)
        assert length == 0 or 0 <= offset <= offset + length <= len(held)
        made.append(bytes(held[offset : offset + length]) if valid else None)
    return made


def all_cells(data: bytes, path: tuple[int, ...], **rows: int) -> list[bytes | None]:
    file, source = parse(data), CheckedSource(data)
    made: list[bytes | None] = []
    for batch in file.batches:
        layout = drive(batch_layout(file.schema, batch), source)
        made += values(data, drive(cells(layout, path, **rows), source))
    return made


# A file allows one dictionary of a column, the same for all batches.
WORDS = pa.array([b"one", b"", b"three"])
CODES = pa.dictionary(pa.int16(), pa.binary())


def as_array(values: list[Any], kind: pa.DataType) -> pa.Array:
    if kind == CODES:
        return pa.DictionaryArray.from_arrays(pa.array(values, pa.int16()), WORDS)
    return pa.array(values, kind)


def leaves(fields: tuple[IpcField, ...], chain: tuple[IpcField, ...] = (), path: tuple[int, ...] = ()) -> Any:
    """The path of each field that has cells."""
    for number, field in enumerate(fields):
        here, at = (*chain, field), (*path, number)
        if has_cells(here):
            yield at
        elif field.codes is None and field.type.kind == Kind.STRUCT:
            yield from leaves(field.children, here, at)


def walk(data: bytes) -> None:
    """Look at all that a file claims to have. Reads outside it are failures, and so are cells outside it."""
    source = CheckedSource(data)
    file = drive(parse_arrow(len(data)), source)
    for batch in file.batches:
        layout = drive(batch_layout(file.schema, batch), source)
        for path in leaves(file.schema.fields):
            found = drive(cells(layout, path, 0, min(layout.rows, 1000), 10**6), source)
            assert len(found.offsets) == len(found.lengths) == len(found.valid) == min(layout.rows, 1000)
            assert (found.lengths >= 0).all() and (found.offsets >= 0).all()
            in_file = slice(None) if found.buffers is None else found.buffers < 0
            assert (found.offsets + found.lengths)[in_file].max(initial=0) <= len(data)
            for part in (numbers_of(file.schema.chain(path)) and column_parts([layout], path)) or ():
                assert 0 <= part.offset <= part.offset + part.stored <= len(data)


EVERY = pa.record_batch(
    {
        "binary": pa.array([b"one", None, b"three"]),
        "large": pa.array([b"one", None, b"three"], pa.large_binary()),
        "view": pa.array([b"one", None, b"more than twelve bytes"], pa.binary_view()),
        "fixed": pa.array([b"one", None, b"two"], pa.binary(3)),
        "codes": as_array([0, None, 2], CODES),
        "struct": pa.array([{"a": b"one", "b": 1}, None, {"a": None, "b": None}]),
        "rows": pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int16(), 2)),
        "list": pa.array([[b"x"], None, []], pa.list_view(pa.binary_view())),
        "null": pa.nulls(3),
        "union": pa.UnionArray.from_dense(
            pa.array([0, 1, 0], pa.int8()), pa.array([0, 0, 1], pa.int32()), [pa.array([1, 2]), pa.array(["a"])]
        ),
        "sparse": pa.UnionArray.from_sparse(
            pa.array([0, 1, 0], pa.int8()), [pa.array([1, 2, 3]), pa.array(list("abc"))]
        ),
        "runs": pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), pa.array([b"a", b"b"])),
        "last": pa.array(["one", None, "three"]),
    },
)
FILES = {
    "file": write_file([EVERY, EVERY.slice(1)]),
    "stream": write_stream([EVERY, EVERY.slice(1)]),
    "zstd": write_file([EVERY], compression="zstd"),
    "lz4": write_stream([EVERY], compression="lz4"),
}
