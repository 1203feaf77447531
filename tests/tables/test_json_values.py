"""The JSON of any Arrow value is what the rules of `json_values` say, and `json.loads` reads it."""

import base64
import json
import math
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from touchfs.tables.values.json_values import json_values, row_lines

TEXTS = st.text(max_size=6)
BYTES = st.binary(max_size=6)
UTC = timezone.utc  # noqa: UP017  the name of Python 3.11 and of Arrow's zones


def number(value: float) -> Any:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def base_64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def seconds(value: timedelta) -> str:
    micros = abs(value) // timedelta(microseconds=1)
    whole, rest = divmod(micros, 10**6)
    return f"{'-' if value < timedelta() else ''}{whole}{f'.{rest:06}'.rstrip('0').rstrip('.')}s"


def clock(value: time) -> str:
    return value.strftime("%H:%M:%S") + f".{value.microsecond:06}".rstrip("0").rstrip(".")


def same(value: Any) -> Any:
    return value


# A type, the values of it, and the value that `json.loads` must return for one.
Case = tuple[pa.DataType, st.SearchStrategy[Any], Any]


def integers(kind: pa.DataType) -> Case:
    bits, is_signed = kind.bit_width, pa.types.is_signed_integer(kind)
    return kind, st.integers(-(2 ** (bits - 1)) if is_signed else 0, 2 ** (bits - is_signed) - 1), same


def decimals(make: Any, digits: int) -> st.SearchStrategy[Case]:
    def case(precision: int, scale: int) -> Case:
        values = st.integers(-(10**precision) + 1, 10**precision - 1)
        return (
            make(precision, min(scale, precision)),
            values.map(lambda value: spelled(value, min(scale, precision))),
            str,
        )

    return st.builds(case, st.integers(1, digits), st.integers(0, digits))


def spelled(value: int, scale: int) -> Decimal:
    return Decimal(f"{value}E{-scale}")


SIMPLE: list[Case] = [
    (pa.null(), st.none(), same),
    (pa.bool_(), st.booleans(), same),
    *(integers(kind()) for kind in (pa.int8, pa.int16, pa.int32, pa.int64, pa.uint8, pa.uint16, pa.uint32, pa.uint64)),
    (pa.float16(), st.floats(width=16), number),
    (pa.float32(), st.floats(width=32), number),
    (pa.float64(), st.floats(), number),
    *((kind(), TEXTS, same) for kind in (pa.string, pa.large_string, pa.string_view)),
    *((kind(), BYTES, base_64) for kind in (pa.binary, pa.large_binary, pa.binary_view)),
    (pa.binary(3), st.binary(min_size=3, max_size=3), base_64),
    (pa.date32(), st.dates(), date.isoformat),
    (pa.date64(), st.dates(), date.isoformat),
    (pa.time64("us"), st.times(), lambda value: value.strftime("%H:%M:%S") + f".{value.microsecond:06}"),
    (pa.time32("s"), st.times().map(lambda value: value.replace(microsecond=0)), lambda value: value.isoformat()),
    (pa.timestamp("us"), st.datetimes(), lambda value: value.isoformat(timespec="microseconds")),
    (
        pa.timestamp("us", "Europe/Berlin"),
        st.datetimes(datetime(1800, 1, 1), datetime(9000, 1, 1)).map(lambda value: value.replace(tzinfo=UTC)),
        lambda value: value.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z",
    ),
    (pa.duration("us"), st.timedeltas(timedelta(-(10**6)), timedelta(10**6)), seconds),
]
SIMPLE = [(kind, values, clock if pa.types.is_time(kind) else expected) for kind, values, expected in SIMPLE]
KEYS = st.sampled_from([case for case in SIMPLE if case[0] in (pa.string(), pa.int32(), pa.binary())])


def nullable(case: Case) -> Case:
    kind, values, expected = case
    return kind, st.none() | values, lambda value: None if value is None else expected(value)


def lists(case: Case, make: Any) -> Case:
    kind, values, expected = nullable(case)
    return make(kind), st.lists(values, max_size=3), lambda value: [expected(each) for each in value]


def fixed(case: Case) -> Case:
    kind, values, expected = nullable(case)
    return pa.list_(kind, 2), st.lists(values, min_size=2, max_size=2), lambda value: [expected(each) for each in value]


def structs(cases: list[Case]) -> Case:
    fields = {f"f{i}": nullable(case) for i, case in enumerate(cases)}
    kind = pa.struct([(name, case[0]) for name, case in fields.items()])
    values = st.fixed_dictionaries({name: case[1] for name, case in fields.items()})
    return kind, values, lambda value: {name: fields[name][2](each) for name, each in value.items()}


def maps(key: Case, item: Case) -> Case:
    kind, values, expected = nullable(item)
    pairs = st.lists(st.tuples(key[1], values), max_size=3)
    return pa.map_(key[0], kind), pairs, lambda value: [[key[2](name), expected(each)] for name, each in value]


MADE = st.recursive(
    st.sampled_from(SIMPLE)
    | decimals(pa.decimal128, 38)
    | decimals(pa.decimal256, 76)
    | decimals(pa.decimal32, 9)
    | decimals(pa.decimal64, 18),
    lambda inner: st.one_of(
        st.builds(lists, inner, st.sampled_from([pa.list_, pa.large_list])),
        st.builds(fixed, inner),
        st.lists(inner, min_size=1, max_size=3).map(structs),
        st.builds(maps, KEYS, inner),
    ),
    max_leaves=4,
)


@settings(max_examples=2 * settings().max_examples)
@given(st.data())
def test_json_is_read_back_by_the_rules(data):
    kind, values, expected = nullable(data.draw(MADE))
    rows = data.draw(st.lists(values, max_size=5))
    array = pa.array(rows, kind)
    skipped = data.draw(st.integers(0, len(rows)))
    for part, wanted in ((array, rows), (array.slice(skipped), rows[skipped:])):
        lines = row_lines(["value"], [part], len(part))
        assert [json.loads(line) for line in lines] == [{"value": expected(value)} for value in wanted]
        assert all(line.endswith(b"\n") and line.count(b"\n") == 1 for line in lines)


@given(st.data())
def test_dictionaries_and_run_ends_are_their_values(data):
    kind, values, expected = data.draw(
        st.sampled_from([case for case in SIMPLE if case[0] in (pa.string(), pa.int64())])
    )
    rows = data.draw(st.lists(st.none() | values, min_size=1, max_size=6))
    plain = pa.array(rows, kind)
    ends = pa.RunEndEncodedArray.from_arrays(list(range(1, len(rows) + 1)), plain)
    wanted = [None if value is None else expected(value) for value in rows]
    assert json_values(plain.dictionary_encode()) == json_values(ends) == wanted


@given(st.data())
def test_views_and_unions_of_any_type(data):
    kind, values, expected = nullable(data.draw(MADE))
    rows = data.draw(st.lists(values, min_size=1, max_size=4))
    plain, wanted = pa.array(rows, kind), [expected(value) for value in rows]
    count = len(rows)
    starts, sizes = pa.array([0, count - 1, None], pa.int32()), pa.array([count, 1, 0], pa.int32())
    views = pa.ListViewArray.from_arrays(starts.fill_null(0), sizes, plain, mask=starts.is_null())
    codes = pa.array([0, 1] * count, pa.int8())
    places, reverse = pa.array(sorted([*range(count)] * 2), pa.int32()), pa.array(rows[::-1], kind)
    dense = pa.UnionArray.from_dense(codes, places, [plain, reverse])
    sparse = pa.UnionArray.from_sparse(codes, [pa.concat_arrays([plain] * 2), pa.nulls(2 * count, pa.int8())])
    twice = [each for pair in zip(wanted, wanted[::-1], strict=True) for each in pair]
    for array, shown in (
        (views, [wanted, wanted[-1:], None]),
        (dense, twice),
        (sparse, [each if i % 2 == 0 else None for i, each in enumerate(wanted * 2)]),
    ):
        for first in (0, 1):
            lines = row_lines(["value"], [array[first:]], len(array) - first)
            assert [json.loads(line)["value"] for line in lines] == shown[first:]


@given(
    make=st.sampled_from(
        [(pa.decimal32, 4, 9), (pa.decimal64, 8, 18), (pa.decimal128, 16, 38), (pa.decimal256, 32, 76)]
    ),
    scale=st.integers(-200, 200),
    data=st.data(),
)
def test_decimals_of_any_scale_and_any_bytes(make, scale, data):
    """A file may have scales that pyarrow cannot convert, and integers that do not fit into the precision."""
    (make_type, width, digits), bits = make, 8 * make[1]
    numbers = data.draw(st.lists(st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1), min_size=1, max_size=5))
    stored = pa.py_buffer(b"".join(number.to_bytes(width, "little", signed=True) for number in numbers))
    array = pa.Array.from_buffers(make_type(digits, scale), len(numbers), [None, stored])
    assert json.loads(row_lines(["value"], [array], len(array))[0]) == {"value": str(spelled(numbers[0], scale))}
    assert json_values(array[1:]) == [str(spelled(number, scale)) for number in numbers[1:]]
