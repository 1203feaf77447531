"""The JSON of rows with the smallest, the largest and invalid values of every type of Arrow.

Each is a text of `json_values`, or a note that it is damaged. All other columns and rows are right.
"""

import io
import json
import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from arrow_tables import FORMATS, write_arrow

from touchfs.core.errors import FormatError
from touchfs.limits import LIMITS
from touchfs.source.data import DATA
from touchfs.tables.rows.open_table import open_table_file

LOW, HIGH = -(2**63), 2**63 - 1


def stored(kind: pa.DataType, *numbers: int) -> pa.Array:
    """These integers as values of a type, and a null."""
    width = kind.bit_width // 8
    data = b"".join(number.to_bytes(width, "little", signed=True) for number in (*numbers, 0))
    valid = pa.py_buffer(((1 << len(numbers)) - 1).to_bytes(8, "little"))
    return pa.Array.from_buffers(kind, len(numbers) + 1, [valid, pa.py_buffer(data)])


PLAIN = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary(), pa.string_view(): pa.binary_view()}


def texts(*values: bytes, kind: pa.DataType = pa.string()) -> pa.Array:  # noqa: B008  types do not change
    """Bytes as text, and a null."""
    return pa.array([*values, None], PLAIN[kind]).view(kind)


def view(text: bytes) -> bytes:
    """A view of a short text."""
    return struct.pack("<i", len(text)) + text.ljust(12, b"\0")


def integers(kind: pa.DataType) -> tuple[pa.Array, list[Any]]:
    info = np.iinfo(kind.to_pandas_dtype())
    return pa.array([info.min, info.max, None], kind), [int(info.min), int(info.max), None]


def floats(kind: pa.DataType) -> tuple[pa.Array, list[Any]]:
    info = np.finfo(kind.to_pandas_dtype())
    values = [info.min, info.smallest_subnormal, float("inf"), float("nan"), None]
    return pa.array(values, kind), [float(info.min), float(info.smallest_subnormal), "Infinity", "NaN", None]


def decimals(make: Any, bits: int) -> tuple[pa.Array, list[Any]]:
    """Of 3 digits, 2 of them after the point."""
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    spelled = [f"{number // 100}.{number % 100:02}" for number in (-low, high)]
    return stored(make(3, 2), 999, low, high), ["9.99", f"-{spelled[0]}", spelled[1], None]


def duration(value: int, digits: int) -> str:
    whole, rest = divmod(abs(value), 10**digits)
    return f"{'-' if value < 0 else ''}{whole}{f'.{rest:0{digits}}'.rstrip('0') if digits else ''}s"


BAD = {"~damaged": "text that is not UTF-8", "base64": "/w=="}
UNITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}
MOMENTS = {
    "s": ("-292277022657-01-27T08:29:52", "292277026596-12-04T15:30:07"),
    "ms": ("-292275055-05-16T16:47:04.192", "292278994-08-17T07:12:55.807"),
    "us": ("-290308-12-21T19:59:05.224192", "294247-01-10T04:00:54.775807"),
    "ns": ("1677-09-21T00:12:43.145224192", "2262-04-11T23:47:16.854775807"),
}
# The values of a column, and what the JSON has of them
CASES: dict[str, tuple[pa.Array, list[Any]]] = {
    "null": (pa.nulls(2), [None, None]),
    "bool": (pa.array([True, False, None]), [True, False, None]),
    **{str(kind): integers(kind) for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64())},
    **{str(kind): integers(kind) for kind in (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())},
    **{str(kind): floats(kind) for kind in (pa.float16(), pa.float32(), pa.float64())},
    **{
        str(kind): (texts(b"\xc3\xbc", b"\xff", b"", kind=kind), ["ü", BAD, "", None])
        for kind in (pa.string(), pa.large_string(), pa.string_view())
    },
    "binary(2)": (pa.array([b"\xff\xff", None], pa.binary(2)), ["//8=", None]),
    "decimal32": decimals(pa.decimal32, 32),
    "decimal64": decimals(pa.decimal64, 64),
    "decimal128": decimals(pa.decimal128, 128),
    "decimal256": decimals(pa.decimal256, 256),
    "date32": (stored(pa.date32(), -(2**31), 0, 2**31 - 1), ["-5877641-06-23", "1970-01-01", "5881580-07-11", None]),
    "date64": (
        stored(pa.date64(), -86_400_000, 5, LOW, HIGH),
        ["1969-12-31", "1970-01-01T00:00:00.005", MOMENTS["ms"][0], MOMENTS["ms"][1], None],
    ),
    "time32[s]": (stored(pa.time32("s"), 86_399, 86_400, -1), ["23:59:59", "24:00:00", "-00:00:01", None]),
    "time32[ms]": (stored(pa.time32("ms"), 1, -(2**31)), ["00:00:00.001", "-596:31:23.648", None]),
    "time64[us]": (stored(pa.time64("us"), 1, HIGH), ["00:00:00.000001", "2562047788:00:54.775807", None]),
    "time64[ns]": (stored(pa.time64("ns"), 1, LOW), ["00:00:00.000000001", "-2562047:47:16.854775808", None]),
    **{
        f"timestamp[{unit}, {zone}]": (
            stored(pa.timestamp(unit, zone), LOW, HIGH),
            [*(moment + ("Z" if zone else "") for moment in MOMENTS[unit]), None],
        )
        for unit in UNITS
        for zone in (None, "UTC", "Europe/Berlin", "no zone")
    },
    **{
        f"duration[{unit}]": (
            stored(pa.duration(unit), LOW, HIGH),
            [duration(LOW, digits), duration(HIGH, digits), None],
        )
        for unit, digits in UNITS.items()
    },
    "interval": (
        stored(pa.month_day_nano_interval(), -(2**31) + (2**31 - 1 << 32) + (-(2**63) << 64)),
        [{"months": -(2**31), "days": 2**31 - 2, "nanoseconds": LOW}, None],
    ),
    "dictionary": (
        pa.DictionaryArray.from_arrays(pa.array([0, 7, 1], pa.int8()), pa.array(["a", "b"]), safe=False),
        ["a", "damaged", "b"],
    ),
    "views": (
        pa.Array.from_buffers(
            pa.string_view(),
            3,
            [None, pa.py_buffer(b"".join([view(b"a"), struct.pack("<i4sii", 20, b"xxxx", 9, 0), view(b"b")]))],
        ),
        ["a", "damaged", "b"],
    ),
    "dictionary of text": (
        pa.DictionaryArray.from_arrays(pa.array([0, 1, None], pa.int8()), texts(b"a", b"\xff"), safe=False),
        ["a", BAD, None],
    ),
    "dictionary of views": (
        pa.DictionaryArray.from_arrays(pa.array([2, None, 0], pa.int8()), pa.array([*"abc"], pa.string_view())),
        ["c", None, "a"],
    ),
    "dictionary without values": (
        pa.DictionaryArray.from_arrays(pa.nulls(2, pa.int8()), pa.array([], pa.string())),
        [None, None],
    ),
    "runs of views": (
        pa.RunEndEncodedArray.from_arrays([2, 3, 5], pa.array(["a", None, "b"], pa.string_view())),
        ["a", "a", None, "b", "b"],
    ),
    "runs": (pa.RunEndEncodedArray.from_arrays([1, 3], pa.array(["a", None])), ["a", None, None]),
    "list": (pa.array([[1], None], pa.list_(pa.date32())), [["1970-01-02"], None]),
    "list of text": (
        pa.ListArray.from_arrays(pa.array([0, 2, 3], pa.int32()), texts(b"a", b"\xff")),
        [["a", BAD], [None]],
    ),
    "list of dates": (
        pa.ListViewArray.from_arrays(
            pa.array([0, 1], pa.int32()), pa.array([2, 1], pa.int32()), stored(pa.date64(), 5)
        ),
        [["1970-01-01T00:00:00.005", None], [None]],
    ),
    "large list": (
        pa.LargeListArray.from_arrays(pa.array([0, 2], pa.int64()), stored(pa.time32("s"), -1)),
        [["-00:00:01", None]],
    ),
    "large list view": (
        pa.LargeListViewArray.from_arrays(pa.array([1, 0]), pa.array([1, 1]), texts(b"\xff")),
        [[None], [BAD]],
    ),
    **{
        f"list of {kind}": (pa.array([[b"\xff", None], None], pa.list_(kind)), [["/w==", None], None])
        for kind in (pa.binary(), pa.large_binary(), pa.binary_view())
    },
    "pairs": (pa.FixedSizeListArray.from_arrays(stored(pa.decimal128(1, 0), 10), 2), [["10", None]]),
    "map": (
        pa.MapArray.from_arrays(pa.array([0, 1, 2], pa.int32()), texts(b"k", b"\xff")[:2], stored(pa.date64(), 5)),
        [[["k", "1970-01-01T00:00:00.005"]], [[BAD, None]]],
    ),
    "struct": (
        pa.StructArray.from_arrays([stored(pa.date64(), 5), texts(b"\xff"), pa.array([1, 2])], names=["d", "s", "d"]),
        [{"d": "1970-01-01T00:00:00.005", "s": BAD, "d~2": 1}, {"d": None, "s": None, "d~2": 2}],
    ),
    "struct of codes": (
        pa.StructArray.from_arrays(
            [
                pa.DictionaryArray.from_arrays(pa.array([0, 7], pa.int8()), pa.array(["a"]), safe=False),
                pa.array([1, 2]),
            ],
            names=["code", "number"],
        ),
        [{"code": "a", "number": 1}, {"code": "damaged", "number": 2}],
    ),
    "dense union": (
        pa.UnionArray.from_dense(
            pa.array([1, 0, 1], pa.int8()),
            pa.array([0, 0, 1], pa.int32()),
            [stored(pa.date64(), 5), texts(b"a", b"\xff")],
        ),
        ["a", "1970-01-01T00:00:00.005", BAD],
    ),
    "sparse union": (
        pa.UnionArray.from_sparse(pa.array([1, 0], pa.int8()), [stored(pa.date64(), 5), texts(b"\xff")]),
        [BAD, None],
    ),
    "uuid": (
        pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"\xff" * 16, None], pa.binary(16))),
        ["/////////////////////w==", None],
    ),
    "tensor": (
        pa.ExtensionArray.from_storage(
            pa.fixed_shape_tensor(pa.int8(), [2]), pa.array([[1, None], None], pa.list_(pa.int8(), 2))
        ),
        [[1, None], None],
    ),
}


def ids(kind: pa.DataType) -> set[int]:
    """The numbers of a type and of those in it."""
    return {kind.id}.union(*(ids(kind.field(i).type) for i in range(kind.num_fields)))


def test_there_is_a_case_of_every_type():
    tried = set().union(*(ids(values.type) for values, _ in CASES.values()))
    known = {number: name for name, number in vars(pa.lib).items() if name.startswith("Type_")}
    others = {"Type_INTERVAL_MONTHS", "Type_INTERVAL_DAY_TIME"}  # see below
    assert {known[number] for number in known.keys() - tried} <= others


def columns(values: pa.Array) -> pa.Table:
    rows = range(len(values))
    return pa.Table.from_arrays(
        [pa.array(rows), values, pa.array([f"row {i}" for i in rows])], ["before", "x", "after"]
    )


def rows_of(path: Any) -> list[Any]:
    file = open_table_file(DATA.open(str(path)), LIMITS)
    return [json.loads(line) for line in file.json_rows(0, 100)]


def expected(values: list[Any]) -> list[Any]:
    return [{"before": i, "x": value, "after": f"row {i}"} for i, value in enumerate(values)]


def without_reasons(value: Any) -> Any:
    """The same values, but a note without base64 is "damaged": the reason is pyarrow's."""
    if isinstance(value, list):
        return [without_reasons(each) for each in value]
    if isinstance(value, dict):
        return "damaged" if [*value] == ["~damaged"] else {name: without_reasons(each) for name, each in value.items()}
    return value


@pytest.mark.parametrize("name", CASES)
def test_one_bad_value_damages_itself(tmp_path, name):
    values, wanted = CASES[name]
    for form in ("file", "stream-lz4") if name != "dictionary" else FORMATS:
        found = rows_of(write_arrow(tmp_path / f"{form}.arrow", columns(values), form, rows=2))
        assert without_reasons(found) == expected(wanted), form


@pytest.mark.parametrize(
    ("unit", "wanted"),
    [
        (0, [{"months": 1, "days": 0, "nanoseconds": 0}, {"months": -2, "days": 0, "nanoseconds": 0}, None]),
        (1, [{"months": 0, "days": 1, "nanoseconds": -2_000_000}, {"months": 0, "days": 3, "nanoseconds": 0}, None]),
    ],
)
def test_intervals_that_pyarrow_has_no_class_for(tmp_path, unit, wanted):
    """They are one of month, day and nanosecond with another number in the schema."""
    values = pa.array([(1, -2, 3), (0, 0, 0), None], pa.month_day_nano_interval())
    path = write_arrow(tmp_path / "x.arrow", columns(pa.StructArray.from_arrays([values], names=["i"])))
    data, mark = path.read_bytes(), struct.pack("<4HIH", 6, 8, 6, 6, 0, 2)
    assert data.count(mark) == 2  # in the first message and in the footer
    path.write_bytes(data.replace(mark, mark[:-2] + struct.pack("<H", unit)))
    assert rows_of(path) == expected([{"i": value} for value in wanted])
    with pytest.raises(FormatError, match="has intervals for which pyarrow has no class"):
        open_table_file(DATA.open(str(path)), LIMITS).read_batch(0).to_pylist()


def test_a_damaged_column_says_so_in_each_row(tmp_path):
    """Lists whose elements are damaged: which of them is not looked for."""
    codes = pa.DictionaryArray.from_arrays(pa.array([0, 7], pa.int8()), pa.array(["a"]), safe=False)
    values = pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), codes)
    found = rows_of(write_arrow(tmp_path / "x.arrow", columns(values)))
    assert without_reasons(found) == expected(["damaged", "damaged"])


@pytest.mark.parametrize("name", ["string", "list of text", "decimal"])
def test_bad_values_in_parquet_files(tmp_path, name):
    values, wanted = CASES.get(name, (stored(pa.decimal128(3, 2), 9999), ["99.99", None]))
    pq.write_table(columns(values), tmp_path / "x.parquet", store_schema=False)
    assert rows_of(tmp_path / "x.parquet") == expected(wanted)


def test_names_that_are_there_twice(tmp_path):
    table = pa.Table.from_arrays([pa.array([93]), pa.array([None], pa.int32()), pa.array([1])], ["a", "a", "a~2"])
    assert rows_of(write_arrow(tmp_path / "x.arrow", table)) == [{"a": 93, "a~3": None, "a~2": 1}]
    pq.write_table(table, tmp_path / "x.parquet")
    assert rows_of(tmp_path / "x.parquet") == [{"a": 93, "a~3": None, "a~2": 1}]


def test_a_damaged_page_names_its_column(tmp_path):
    made = io.BytesIO()
    pq.write_table(pa.table({"good": [1, 2], "bad": ["x" * 50, "y"]}), made, compression="none", use_dictionary=False)
    (tmp_path / "x.parquet").write_bytes(made.getvalue().replace(struct.pack("<I", 50) + b"x", b"\xff" * 5, 1))
    with pytest.raises(FormatError, match=r"^column 'bad': "):
        rows_of(tmp_path / "x.parquet")


def int96(day: int, nanoseconds: int) -> bytes:
    """A timestamp of a Julian day: 2,440,588 is 1970-01-01."""
    return struct.pack("<qi", nanoseconds, day)


@pytest.mark.parametrize(
    ("stored", "wanted"),
    [
        (int96(2_440_588, 1), "1970-01-01T00:00:00.000000001"),
        (int96(2_440_588, -1), "1969-12-31T23:59:59.999999999"),
        (int96(5_373_484, 86_399_999_999_999), "9999-12-31T23:59:59.999999999"),
        (int96(0, 0), "-4713-11-24T00:00:00.000000000"),
        # -290308-12-21T19:59:05.224192, the first microsecond of 64 bits, and what Spark makes of one before
        (int96(-104_311_404, 71_945_224_192_000), "-290308-12-21T19:59:05.224192000"),
        (int96(-104_311_404, 71_945_224_191_000), "294247-01-10T04:00:54.775807000"),
    ],
)
def test_timestamps_of_int96(tmp_path, stored, wanted):
    """Also in lists and structs. Tables of nanoseconds take those that fit."""
    column = pa.array([5, 7, None], pa.timestamp("ns"))
    nested = pa.array([[{"t": 7, "n": 1}], None, []], pa.list_(pa.struct([("t", column.type), ("n", pa.int8())])))
    table = pa.table({"before": [0, 1, 2], "x": column, "nested": nested})
    made = io.BytesIO()
    pq.write_table(table, made, use_deprecated_int96_timestamps=True, use_dictionary=False, compression="none")
    (tmp_path / "x.parquet").write_bytes(made.getvalue().replace(int96(2_440_588, 7), stored))
    assert rows_of(tmp_path / "x.parquet") == [
        {"before": 0, "x": "1970-01-01T00:00:00.000000005", "nested": [{"t": wanted, "n": 1}]},
        {"before": 1, "x": wanted, "nested": None},
        {"before": 2, "x": None, "nested": []},
    ]
    file = open_table_file(DATA.open(str(tmp_path / "x.parquet")), LIMITS)
    if wanted.startswith(("19", "20")):
        assert file.read_batch(0).schema.field("x").type == column.type
        return
    with pytest.raises(FormatError, match="'x' has Int96 timestamps outside of 1677 to 2262"):
        file.read_batch(0, ["x"])
