"""Open Arrow files: batches, columns of them, and rows as JSON, in both formats and both codecs."""

import datetime
import decimal
import json
import math
import os
import struct

import polars
import pyarrow as pa
import pytest
from arrow_tables import FORMATS, write_arrow
from conformance import check_reads
from variants import with_variants

from touchfs.core.errors import FormatError
from touchfs.core.extent import Extent
from touchfs.form.ordinals import pack_ordinal
from touchfs.format.arrow import flatbuffers
from touchfs.format.arrow.messages import footer_range
from touchfs.limits import LIMITS, Limits
from touchfs.registry.forms import parse_form
from touchfs.source.data import DATA
from touchfs.tables.arrow.arrow_file import ArrowFile, open_arrow
from touchfs.tables.values.row_texts import GROUP_ROWS


def every_type() -> pa.Table:
    text = ["a", None, "longer than twelve letters", "ü"]
    return pa.table(
        {
            "int": pa.array([1, None, 3, -(2**63)]),
            "float": pa.array([1.5, math.nan, None, -math.inf]),
            "half": pa.array([1.5, 2, None, 0], pa.float16()),
            "bool": pa.array([True, None, False, True]),
            "text": text,
            "large text": pa.array(text, pa.large_string()),
            "text view": pa.array(text, pa.string_view()),
            "bytes": pa.array([b"x", None, b"", b"\xff"]),
            "four bytes": pa.array([b"abcd", None, b"0000", b"\0\0\0\0"], pa.binary(4)),
            "decimal": pa.array([decimal.Decimal("1.20"), None, decimal.Decimal("-3.00"), None]),
            "moment": pa.array([1, None, 10**18 + 1, -1], pa.timestamp("ns")),
            "moment in Berlin": pa.array([0, 1, None, 10**9], pa.timestamp("s", "Europe/Berlin")),
            "day": pa.array([datetime.date(2024, 2, 29), None, datetime.date(1, 1, 1), None]),
            "time": pa.array([datetime.time(1, 2, 3, 4), None, datetime.time(0), datetime.time(23, 59, 59)]),
            "duration": pa.array([-1500, None, 2000, 1], pa.duration("ms")),
            "interval": pa.array([(1, 2, 3), None, (0, 0, 0), (-1, 0, 0)], pa.month_day_nano_interval()),
            "list": pa.array([[1, 2], None, [], [None]]),
            "pairs": pa.array([[1, 2], None, [3, None], [5, 6]], pa.list_(pa.int32(), 2)),
            "view of lists": pa.array([[1.5], None, [], [math.nan]], pa.list_view(pa.float32())),
            "struct": pa.array([{"a": [1], "b": b"q"}, None, {"a": None, "b": None}, {"a": [], "b": b""}]),
            "map": pa.array([[("a", 1)], None, [], [("b", None)]], pa.map_(pa.string(), pa.int8())),
            "word": pa.array(["x", None, "y", "x"]).dictionary_encode(),
            "nothing": pa.nulls(4),
        }
    )


EXPECTED = {
    "int": [1, None, 3, -(2**63)],
    "float": [1.5, "NaN", None, "-Infinity"],
    "half": [1.5, 2.0, None, 0.0],
    "bool": [True, None, False, True],
    **{name: ["a", None, "longer than twelve letters", "ü"] for name in ("text", "large text", "text view")},
    "bytes": ["eA==", None, "", "/w=="],
    "four bytes": ["YWJjZA==", None, "MDAwMA==", "AAAAAA=="],
    "decimal": ["1.20", None, "-3.00", None],
    "moment": ["1970-01-01T00:00:00.000000001", None, "2001-09-09T01:46:40.000000001", "1969-12-31T23:59:59.999999999"],
    "moment in Berlin": ["1970-01-01T00:00:00Z", "1970-01-01T00:00:01Z", None, "2001-09-09T01:46:40Z"],
    "day": ["2024-02-29", None, "0001-01-01", None],
    "time": ["01:02:03.000004", None, "00:00:00", "23:59:59"],
    "duration": ["-1.5s", None, "2s", "0.001s"],
    "interval": [
        {"months": 1, "days": 2, "nanoseconds": 3},
        None,
        {"months": 0, "days": 0, "nanoseconds": 0},
        {"months": -1, "days": 0, "nanoseconds": 0},
    ],
    "list": [[1, 2], None, [], [None]],
    "pairs": [[1, 2], None, [3, None], [5, 6]],
    "view of lists": [[1.5], None, [], ["NaN"]],
    "struct": [{"a": [1], "b": "cQ=="}, None, {"a": None, "b": None}, {"a": [], "b": ""}],
    "map": [[["a", 1]], None, [], [["b", None]]],
    "word": ["x", None, "y", "x"],
    "nothing": [None] * 4,
}


def opened(path: os.PathLike[str], limits: Limits = LIMITS) -> ArrowFile:
    return open_arrow(DATA.open(os.fspath(path)), limits)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("rows", [1, 3, 100])
def test_rows_of_all_types_are_json(tmp_path, form, rows):
    table = every_type()
    file = opened(write_arrow(tmp_path / "x.arrow", table, form, rows))
    texts = file.json_rows(0, 10)
    assert [json.loads(text) for text in texts] == [
        {name: values[i] for name, values in EXPECTED.items()} for i in range(4)
    ]
    assert all(text.endswith(b"}\n") and text.count(b"\n") == 1 for text in texts)
    assert file.json_rows(2, 1) == texts[2:3] and file.json_rows(4, 5) == []


@pytest.mark.parametrize("form", FORMATS)
def test_batches_are_those_of_pyarrow(tmp_path, form):
    table = every_type()
    file = opened(write_arrow(tmp_path / "x.arrow", table, form))
    assert (file.rows, file.batches, file.schema) == (4, 2, table.schema)
    assert [file.locate(row) for row in range(4)] == [(0, 0), (0, 1), (0, 2), (1, 0)]
    for row in (-1, 4):
        with pytest.raises(IndexError):
            file.locate(row)
    for number in range(2):
        expected = table.slice(3 * number, 3).combine_chunks().to_batches()[0].to_struct_array()
        assert str(file.read_batch(number).to_struct_array()) == str(expected)
        some = file.read_batch(number, ["text", "struct"])
        assert some.to_pylist() == table.select(["text", "struct"]).slice(3 * number, 3).to_pylist()
    with pytest.raises(FormatError, match="no column 'x'"):
        file.read_batch(0, ["x"])


class _Counting:
    """A source that notes which bytes are read."""

    def __init__(self, path):
        self._file = DATA.open(os.fspath(path))
        self.ranges = []

    def __getattr__(self, name):
        return getattr(self._file, name)

    def read(self, offset, length):
        self.ranges.append((offset, length))
        return self._file.read(offset, length)

    def read_into(self, offset, buffer):
        self.ranges.append((offset, len(buffer)))
        self._file.read_into(offset, buffer)


@pytest.mark.parametrize("form", FORMATS)
def test_what_is_left_out_is_not_read(tmp_path, form):
    """Neither the bytes of cells, nor those of other columns."""
    payload = os.urandom(1 << 20)
    cells = pa.array([{"bytes": payload, "path": "a"}, None, {"bytes": payload, "path": None}])
    table = pa.table({"image": cells, "n": [1, 2, 3], "other": [payload] * 3})
    source = _Counting(write_arrow(tmp_path / "x.arrow", table, form))
    file = ArrowFile(source, LIMITS)
    rows = [json.loads(text) for text in file.json_rows(0, 9, [(0, 0), (2,)])]
    assert rows == [{"image": {"path": "a"}, "n": 1}, {"image": None, "n": 2}, {"image": {"path": None}, "n": 3}]
    assert file.read_values(0, (0, 1)) == ["a", None, None]
    assert file.read_values(0, (1,)) == [1, 2, 3]
    assert sum(length for _, length in source.ranges) < 200_000
    assert file.json_rows(0, 1, [(0,), (1,), (2,)]) == [b"{}\n"]


def test_a_batch_that_takes_too_much_memory_is_refused(tmp_path):
    table = pa.table({"text": ["x" * 1000] * 1000})
    for form in ("file", "file-zstd"):
        file = opened(write_arrow(tmp_path / f"{form}.arrow", table, form, 1000), Limits(decoded=100_000))
        with pytest.raises(FormatError, match="over 100,000 bytes"):
            file.json_rows(0, 1)


def test_the_form_of_rows(tmp_path):
    """The size is known once a row of its group was made; then reads need not wait."""
    count = 2 * GROUP_ROWS + 5
    table = pa.table({"n": list(range(count)), "x": [b"x"] * count})
    path = write_arrow(tmp_path / "x.arrow", table, rows=GROUP_ROWS - 1)
    form, source = parse_form("row/1"), DATA.open(str(path))
    source.open()
    extent = Extent(source, 0, 0)
    assert form.size(0, pack_ordinal(0)) is None
    assert form.known_size(extent, pack_ordinal(GROUP_ROWS), LIMITS) is None
    for ordinal in (0, GROUP_ROWS - 1, GROUP_ROWS, count - 1):
        content = form.content(extent, pack_ordinal(ordinal), LIMITS)
        check_reads(content, b'{"n": %d}\n' % ordinal)
        assert bytes(content.read_nowait(0, 100)) == b'{"n": %d}\n' % ordinal
        assert form.known_size(extent, pack_ordinal(ordinal), LIMITS) == content.size
    with pytest.raises(FormatError, match="no such row"):
        form.content(extent, pack_ordinal(count), LIMITS).read(0, 1)
    with pytest.raises(FormatError, match="damaged"):
        form.content(extent, b"x", LIMITS)


def test_a_changed_file_is_another_table(tmp_path):
    path = write_arrow(tmp_path / "x.arrow", pa.table({"n": [1]}))
    assert opened(path).json_rows(0, 1) == [b'{"n": 1}\n']
    write_arrow(tmp_path / "new.arrow", pa.table({"n": [2]})).rename(path)
    assert opened(path).json_rows(0, 1) == [b'{"n": 2}\n']


@pytest.mark.parametrize("form", with_variants(FORMATS, lambda form: form in ("file", "stream-lz4")))
def test_damage_is_a_format_error(tmp_path, form):
    """Nothing else comes of bytes that are changed anywhere but in values."""
    whole = write_arrow(tmp_path / "x.arrow", every_type(), form).read_bytes()
    for place in range(0, len(whole), 61):
        damaged = tmp_path / "damaged.arrow"
        damaged.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        try:
            file = ArrowFile(DATA.open(str(damaged)), LIMITS)
            file.json_rows(0, 10)
        except FormatError:
            continue


def of_bytes(kind: pa.DataType, count: int, *buffers: bytes) -> pa.Array:
    return pa.Array.from_buffers(kind, count, [None, *map(pa.py_buffer, buffers)])


LARGE_VALUES = {
    "nulls": lambda: pa.ListArray.from_arrays(pa.array([0, 2**31 - 1], pa.int32()), pa.nulls(2**31 - 1)),
    "empty structs": lambda: pa.LargeListArray.from_arrays([0, 2**31 - 1], of_bytes(pa.struct([]), 2**31 - 1)),
    "lists of nulls": lambda: pa.FixedSizeListArray.from_arrays(pa.nulls(2**31 - 1), 2**31 - 1),
    "lists that overlap": lambda: pa.ListViewArray.from_arrays(
        pa.array([0] * 100, pa.int32()), pa.array([10**6] * 100, pa.int32()), pa.nulls(10**6)
    ),
    "a dictionary": lambda: pa.DictionaryArray.from_arrays(pa.array([0] * 100, pa.int8()), ["x" * 10**6]),
    "runs": lambda: pa.RunEndEncodedArray.from_arrays(pa.array([100], pa.int16()), ["x" * 10**6]),
    "views": lambda: of_bytes(pa.string_view(), 100, struct.pack("<i4sii", 10**6, b"xxxx", 0, 0) * 100, b"x" * 10**6),
    "views in lists": lambda: pa.FixedSizeListArray.from_arrays(LARGE_VALUES["views"](), 50),
}


@pytest.mark.parametrize("name", LARGE_VALUES)
def test_a_small_file_of_large_values_is_refused(tmp_path, name):
    """Before it takes the memory: the values have 50 MB or more, and no file has over 2 MB."""
    path = tmp_path / "x.arrow"
    batch = pa.record_batch({"id": LARGE_VALUES[name]()})
    with pa.ipc.new_file(path, batch.schema) as writer:
        writer.write_batch(batch)
    file = opened(path, Limits(decoded=30_000_000))
    for read in (
        lambda: file.json_rows(0, 100),
        lambda: list(file.json_column(0, 0)),
        lambda: file.read_values(0, (0,)),
    ):
        with pytest.raises(FormatError, match="over 30,000,000 bytes"):
            read()


def test_a_dictionary_that_decompresses_to_too_much_is_refused(tmp_path):
    words = pa.DictionaryArray.from_arrays(pa.array([0], pa.int8()), ["x" * 10**6])
    path = write_arrow(tmp_path / "x.arrow", pa.table({"word": words}), "file-zstd")
    assert path.stat().st_size < 10_000
    with pytest.raises(FormatError, match="over 900,000 bytes"):
        opened(path, Limits(decoded=900_000)).json_rows(0, 1)


def footer_of(data: bytes) -> tuple[int, flatbuffers.FlatTable]:
    """Where the footer of a file is, and its table."""
    start, size = footer_range(data[-10:], len(data))
    return start, flatbuffers.root(memoryview(data), start, size)


def without_schema_message(data: bytes) -> bytes:
    """As Arrow JS writes files: batches follow the magic bytes."""
    start, footer = footer_of(data)
    first = 16 + struct.unpack_from("<i", data, 12)[0]
    made = bytearray(data)
    for slot in (2, 3):
        for block in footer.structs(slot, struct.Struct("<qi4xq")):
            place = data.rindex(struct.pack("<q", block[0]), start)
            struct.pack_into("<q", made, place, block[0] - (first - 8))
    return bytes(made[:8] + made[first:])


def without_version(data: bytes) -> bytes:
    """As Java's writer did before 1.0: the vtable of the footer says that it has no version."""
    start, _ = footer_of(data)
    root = start + struct.unpack_from("<I", data, start)[0]
    made = bytearray(data)
    struct.pack_into("<H", made, root - struct.unpack_from("<i", data, root)[0] + 4, 0)
    return bytes(made)


def with_schema_message(data: bytes, byte: int) -> bytes:
    """With other bytes in place of the first message, after the size of its metadata."""
    size = struct.unpack_from("<i", data, 12)[0]
    return data[:16] + bytes([byte]) * size + data[16 + size :]


@pytest.mark.parametrize(
    "change",
    [
        without_schema_message,
        without_version,
        lambda data: with_schema_message(data, 0),
        lambda data: with_schema_message(data, 7),
        lambda data: data.replace(b"text", b"test", 1),
        lambda data: data[: footer_of(data)[0] - 8] + data[footer_of(data)[0] :],
    ],
    ids=["no message", "no version", "zeros", "garbled", "another schema", "no end of stream"],
)
@pytest.mark.parametrize("form", ["file", "file-zstd"])
def test_a_file_is_read_by_its_footer(tmp_path, change, form):
    """As pyarrow does, whatever the first message is."""
    table = every_type()
    path = write_arrow(tmp_path / "x.arrow", table, form)
    path.write_bytes(change(path.read_bytes()))
    file = opened(path)
    assert pa.ipc.open_file(str(path)).read_all().schema == file.schema == table.schema
    assert [json.loads(text) for text in file.json_rows(0, 10)] == [
        {name: values[i] for name, values in EXPECTED.items()} for i in range(4)
    ]


def test_a_file_of_polars(tmp_path):
    table = every_type().select(["int", "text", "list", "word"])
    polars.from_arrow(table).write_ipc(tmp_path / "x.arrow")
    names = table.schema.names
    assert [json.loads(text) for text in opened(tmp_path / "x.arrow").json_rows(0, 10)] == [
        {name: EXPECTED[name][i] for name in names} for i in range(4)
    ]


def test_billions_of_rows_without_bytes_are_refused(tmp_path):
    path = tmp_path / "x.arrow"
    batch = pa.record_batch({"nothing": pa.nulls(1 << 20)})
    with pa.ipc.new_file(path, batch.schema) as writer:
        for _ in range(80):
            writer.write_batch(batch)
    with pytest.raises(FormatError, match="which have no bytes"):
        opened(path)
