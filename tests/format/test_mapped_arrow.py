import io
import mmap
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from touchfs.core.errors import FormatError
from touchfs.format.arrow import flatbuffers
from touchfs.format.arrow.build import build_batch, build_batch_message, build_end, build_file, build_head, padded_size
from touchfs.format.arrow.flatbuffers import I16, Scalar
from touchfs.format.arrow.mapped_columns import BinaryColumn
from touchfs.format.arrow.mapped_file import MappedFile, parse_file

INTEGERS = ["uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"]


def values_of(kind: str) -> st.SearchStrategy[Any]:
    if kind == "binary":
        return st.binary(max_size=20)
    limits = np.iinfo(kind)
    return st.integers(int(limits.min), int(limits.max))


@st.composite
def tables(draw: st.DrawFn) -> tuple[dict[str, str], list[dict[str, list[Any]]], dict[str, str]]:
    """Columns, batches of plain values, metadata."""
    names = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
    columns = draw(st.dictionaries(names, st.sampled_from([*INTEGERS, "binary"]), min_size=1, max_size=5))
    batches = []
    for _ in range(draw(st.integers(0, 3))):
        rows = draw(st.integers(0, 5))
        batches.append(
            {name: draw(st.lists(values_of(kind), min_size=rows, max_size=rows)) for name, kind in columns.items()}
        )
    return columns, batches, draw(st.dictionaries(names, names, max_size=3))


def build(columns: Mapping[str, str], batches: list[dict[str, list[Any]]], metadata: Mapping[str, str]) -> bytes:
    made = (
        {
            name: BinaryColumn.of(values) if columns[name] == "binary" else np.array(values, columns[name])
            for name, values in batch.items()
        }
        for batch in batches
    )
    return b"".join(build_file(columns, made, metadata))


def plain(file: MappedFile) -> list[dict[str, list[Any]]]:
    """All values, one by one through the accessors."""
    return [
        {
            name: [column[i] for i in range(batch.rows)] if isinstance(column, BinaryColumn) else column.tolist()
            for name, column in batch.columns.items()
        }
        for batch in file.batches
    ]


def written_by_pyarrow(table: pa.Table, options: pa.ipc.IpcWriteOptions | None = None) -> bytes:
    made = io.BytesIO()
    with pa.ipc.new_file(made, table.schema, options=options) as writer:
        writer.write_table(table)
    return made.getvalue()


@given(tables())
def test_round_trip(table: tuple[dict[str, str], list[dict[str, list[Any]]], dict[str, str]]) -> None:
    columns, batches, metadata = table
    file = parse_file(build(columns, batches, metadata))
    assert {name: str(kind) for name, kind in file.columns.items()} == columns
    assert file.metadata == metadata
    assert plain(file) == batches


@given(tables())
def test_pyarrow_reads_what_we_write(table: tuple[dict[str, str], list[dict[str, list[Any]]], dict[str, str]]) -> None:
    columns, batches, metadata = table
    data = build(columns, batches, metadata)
    assert pa.ipc.open_stream(data[8:]).read_all().num_rows == sum(len(next(iter(b.values()))) for b in batches)
    file = pa.ipc.open_file(data)
    assert {field.name: str(field.type) for field in file.schema} == columns
    assert not any(field.nullable for field in file.schema)
    assert {k.decode(): v.decode() for k, v in (file.schema.metadata or {}).items()} == metadata
    assert file.num_record_batches == len(batches)
    for i, batch in enumerate(batches):
        read = file.get_batch(i)
        read.validate(full=True)
        assert {name: read.column(name).to_pylist() for name in columns} == batch


@given(tables(), st.booleans(), st.integers(1, 3))
def test_we_read_what_pyarrow_writes(
    table: tuple[dict[str, str], list[dict[str, list[Any]]], dict[str, str]], nullable: bool, first: int
) -> None:
    columns, batches, metadata = table
    types = {name: pa.binary() if kind == "binary" else getattr(pa, kind)() for name, kind in columns.items()}
    schema = pa.schema([pa.field(name, kind, nullable) for name, kind in types.items()], metadata)
    made = io.BytesIO()
    with pa.ipc.new_file(made, schema) as writer:
        for batch in batches:
            arrays = [pa.array(batch[name], kind) for name, kind in types.items()]
            writer.write_batch(pa.record_batch(arrays, schema=schema))
            writer.write_batch(pa.record_batch(arrays, schema=schema).slice(first))
    file = parse_file(made.getvalue())
    assert file.metadata == metadata
    expected = []
    for batch in batches:
        expected += [batch, {name: values[first:] for name, values in batch.items()}]
    assert plain(file) == expected


def test_mapped_and_aligned(tmp_path: Path) -> None:
    path = tmp_path / "catalog.arrow"
    columns = {"path": "binary", "offset": "int64", "count": "uint16"}
    values = {"path": [b"a/%d" % i for i in range(999)], "offset": list(range(999)), "count": [7] * 999}
    path.write_bytes(build(columns, [values, values], {"k": "v"}))
    with open(path, "rb") as opened:
        mapped = memoryview(mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ))
    file = parse_file(mapped)
    base = np.frombuffer(mapped, np.uint8).ctypes.data
    for batch in file.batches:
        offset, path_column = batch.columns["offset"], batch.columns["path"]
        assert isinstance(offset, np.ndarray)
        assert isinstance(path_column, BinaryColumn)
        assert (offset.ctypes.data - base) % 64 == 0
        assert 0 <= offset.ctypes.data - base < len(mapped)
        assert not offset.flags.writeable
        assert path_column[998] == b"a/998"
        assert list(path_column) == values["path"]
        with pytest.raises(IndexError):
            path_column[999]
        with pytest.raises(IndexError):
            path_column[-1]


@pytest.mark.parametrize(
    ("column", "words"),
    [
        (pa.array([1, None]), "'x' has nulls"),
        (pa.array(["a"]), "'x' is of type utf8"),
        (pa.array([1.5]), "'x' is of type float"),
        (pa.array([[1]]), "'x' is of type list"),
        (pa.array([b"a"], pa.large_binary()), "'x' is of type large_binary"),
        (pa.array([b"a"]).dictionary_encode(), "'x' is dictionary-encoded|has dictionaries"),
        (pa.array([b"a"], pa.binary_view()), "'x' is of type binary_view"),
    ],
)
def test_what_is_not_read_is_named(column: pa.Array, words: str) -> None:
    with pytest.raises(FormatError, match=words):
        parse_file(written_by_pyarrow(pa.table({"x": column})))


def test_compression_is_named() -> None:
    table = pa.table({"x": pa.array(range(1000))})
    with pytest.raises(FormatError, match="compressed"):
        parse_file(written_by_pyarrow(table, pa.ipc.IpcWriteOptions(compression="zstd")))


def test_two_columns_of_one_name() -> None:
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["x", "x"])
    with pytest.raises(FormatError, match="two columns"):
        parse_file(written_by_pyarrow(table))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "begin with ARROW1"),
        (b"ARROW1\0\0", "ends before its footer"),
        (b"ARROW1\0\0" + bytes(60), "not finished"),
        (b"ARROW1\0\0" + struct.pack("<i6s", 5000, b"ARROW1"), "footer of 5000"),
        (b"ARROW1\0\0" + struct.pack("<i6s", -1, b"ARROW1"), "footer of -1"),
        (b"ARROW1\0\0" + struct.pack("<i6s", 0, b"ARROW1"), "outside itself"),
    ],
)
def test_refusals(data: bytes, words: str) -> None:
    with pytest.raises(FormatError, match=words) as caught:
        parse_file(data)
    assert caught.value.offset is not None


@pytest.mark.parametrize(("version", "endianness", "words"), [(4, 1, "big-endian"), (2, 0, "version V3")])
def test_other_footers_are_named(version: int, endianness: int, words: str) -> None:
    schema = {0: Scalar(I16, endianness), 1: []}
    footer = flatbuffers.build({0: Scalar(I16, version), 1: schema, 2: [], 3: []})
    with pytest.raises(FormatError, match=words):
        parse_file(b"ARROW1\0\0" + footer + struct.pack("<i6s", len(footer), b"ARROW1"))


VALID = build(
    {"path": "binary", "offset": "int64", "kind": "uint8"},
    [{"path": [b"a", b"bcd"], "offset": [1, 2], "kind": [3, 4]}, {"path": [b""], "offset": [-1], "kind": [0]}],
    {"key": "value"},
)
FOREIGN = written_by_pyarrow(
    pa.table({"path": pa.array([b"a", b"bcd"]), "n": pa.array([1, 2], pa.int16())}).replace_schema_metadata({"k": "v"})
)


def check_hostile(data: bytes) -> None:
    try:
        file = parse_file(data)
        plain(file)
    except FormatError as error:
        assert error.offset is not None
        assert 0 <= error.offset <= len(data)


@pytest.mark.parametrize("valid", [VALID, FOREIGN], ids=["ours", "pyarrow"])
@pytest.mark.parametrize("changes", [1, pytest.param(5, marks=pytest.mark.variant)])
def test_every_flipped_byte(valid: bytes, changes: int) -> None:
    """In one of these ways, or in all of them."""
    for position in range(len(valid)):
        for change in [(0x01, 0x04, 0x10, 0x80, 0xFF)[(position + i) % 5] for i in range(changes)]:
            data = bytearray(valid)
            data[position] ^= change
            check_hostile(bytes(data))


@settings(max_examples=2 * settings().max_examples)
@given(
    st.sampled_from([VALID, FOREIGN]),
    st.lists(st.tuples(st.integers(0, 2000), st.integers(-(2**63), 2**63 - 1) | st.integers(-9, 9)), max_size=4),
    st.sampled_from(["<b", "<h", "<i", "<q"]),
)
def test_numbers_replaced(valid: bytes, changes: list[tuple[int, int]], layout: str) -> None:
    data = bytearray(valid)
    width = struct.calcsize(layout)
    for position, number in changes:
        wrapped = (number + 2 ** (8 * width - 1)) % 2 ** (8 * width) - 2 ** (8 * width - 1)
        struct.pack_into(layout, data, position % (len(data) - width), wrapped)
    check_hostile(bytes(data))


@given(st.binary(max_size=200))
@example(b"")
def test_any_footer(footer: bytes) -> None:
    check_hostile(b"ARROW1\0\0" + footer + struct.pack("<i6s", len(footer), b"ARROW1"))


@pytest.mark.parametrize("valid", [VALID, FOREIGN], ids=["ours", "pyarrow"])
def test_every_cut(valid: bytes) -> None:
    for size in range(len(valid)):
        with pytest.raises(FormatError):
            parse_file(valid[:size])


def test_a_text_shown_over_and_over() -> None:
    """A thousand pairs of metadata that all show one long text must not cost a thousand copies of it."""
    text = "x" * 50_000
    data = bytearray(build({"x": "int8"}, [], {f"key{i:04}": "" for i in range(1000)} | {"last": text}))
    start = len(data) - 10 - struct.unpack_from("<i", data, len(data) - 10)[0]
    long = data.index(text.encode(), start) - 4
    for i in range(1000):
        key = data.index(f"key{i:04}".encode(), start) - 4
        table = key - 12  # the step back to its vtable, the step to its key, the step to its value
        assert struct.unpack_from("<iI", data, table) == (8, 8)
        struct.pack_into("<I", data, table + 8, long - (table + 8))
    with pytest.raises(FormatError, match="over and over"):
        parse_file(data)


def test_hostile_offsets_inside_a_binary_column() -> None:
    data = memoryview(b"abcdef")
    column = BinaryColumn(np.array([0, 5, 2, 9, -4, 6], np.int32), data)
    assert column[0] == b"abcde"
    for i in (1, 2, 3, 4):
        with pytest.raises(FormatError, match=f"value {i} "):
            column[i]


@pytest.mark.parametrize(
    "batch",
    [
        {},
        {"path": BinaryColumn.of([b"a"])},
        {"path": BinaryColumn.of([b"a"]), "n": np.arange(2)},
        {"path": np.arange(1), "n": np.arange(1)},
        {"path": BinaryColumn.of([b"a"]), "n": BinaryColumn.of([b"a"])},
        {"path": BinaryColumn.of([b"a"]), "n": np.arange(1, dtype=np.uint64)},
        {"path": BinaryColumn.of([b"a"]), "n": np.ones(1)},
        {"path": BinaryColumn(np.array([0, 2], np.int32), memoryview(b"a")), "n": np.arange(1)},
        {"path": BinaryColumn(np.array([0, 2, 1], np.int32), memoryview(b"ab")), "n": np.arange(2)},
    ],
)
def test_batches_that_are_not_written(batch: Mapping[str, Any]) -> None:
    with pytest.raises(FormatError):
        list(build_file({"path": "binary", "n": "int64"}, [batch], {}))


def test_columns_that_are_not_written() -> None:
    with pytest.raises(FormatError, match="would be of <f4"):
        list(build_file({"x": np.dtype("float32")}, [], {}))
    with pytest.raises(FormatError, match="not a text"):
        list(build_file({"x\udc80": "int8"}, [], {}))


def test_texts_and_floats_are_written() -> None:
    batch = {"t": BinaryColumn.of(["é".encode(), b""]), "x": np.array([1.5, -0.0])}
    columns = {"t": "utf8", "x": "float64"}
    data = b"".join(map(bytes, build_file(columns, [batch, batch], {"a": "b"})))
    table = pa.ipc.open_file(data).read_all()
    table.validate(full=True)
    assert table.to_pydict() == {"t": ["é", ""] * 2, "x": [1.5, -0.0] * 2}
    assert [field.type for field in table.schema] == [pa.string(), pa.float64()]
    # In parts it is the same file.
    message, buffers = build_batch(columns, batch)
    body = b"".join(bytes(each).ljust(padded_size(len(each)), b"\0") for each in buffers)
    parts = [message, body] * 2
    end = build_end(columns, {"a": "b"}, [(len(message), len(body))] * 2)
    assert b"".join([build_head(columns, {"a": "b"}), *parts, end]) == data
    assert len(build_batch_message(2, 1 << 40, [1 << 40] * 5)) == len(message)
