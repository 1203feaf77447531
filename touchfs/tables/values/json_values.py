"""Values of Arrow columns as JSON.

null, bool, integers, text      as JSON has them
floats                          numbers; NaN and the infinities are the texts "NaN", "Infinity" and "-Infinity"
decimals                        text, with all digits
bytes                           base64
dates, times, timestamps        ISO 8601; a timestamp with a time zone is in UTC and ends in Z. Those of Int96 are exact
durations                       text with seconds, as "1.5s"
intervals                       {"months": …, "days": …, "nanoseconds": …}
lists, structs                  arrays, objects; the second of two fields of one name gets "~2"
unions                          the value of the row
maps                            arrays of [key, value]
dictionaries, run-end encoded   their values
extension types                 their storage
damaged values                  {"~damaged": …}, which says what is wrong; text that is not UTF-8 also has its "base64"

No value fails: dates that are no whole days have a time, times may be below 0 or over 24 hours, and decimals may have
more digits than their type says.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from touchfs.core.names import distinct

if TYPE_CHECKING:
    import pyarrow

_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}
_SECONDS_OF_DAY = 86_400
_NANOS_OF_DAY = _SECONDS_OF_DAY * 10**9
_INT96 = np.dtype([("nanoseconds", "<i8"), ("day", "<i4")])
# The Julian day of 1970-01-01, and the days that microseconds of 64 bits reach
_EPOCH, _SPARK_DAYS = 2_440_588, 106_751_991


def json_values(array: pyarrow.Array) -> list[Any]:
    """The values of an array (see `touchfs.tables.values.sound`) as `json.dumps` takes them, one for each row."""
    import pyarrow

    from touchfs.tables.values.leaf_types import MarkedType

    types, kind = pyarrow.types, array.type
    if isinstance(kind, MarkedType):
        if kind.mark == "int96":
            return _moments(*int96_moments(array.storage), array.is_valid(), _DIGITS["ns"], "")
        return _converted(array.storage.to_pylist(), _MARKED[kind.mark])
    if isinstance(kind, pyarrow.BaseExtensionType):
        return json_values(array.storage)
    if types.is_dictionary(kind):
        return _by_codes(array.dictionary, array.indices)
    if types.is_run_end_encoded(kind):
        runs = array.find_physical_length()
        first = array.find_physical_offset()
        ends = np.asarray(array.run_ends[first : first + runs]).astype(np.int64) - array.offset
        places = np.searchsorted(ends, np.arange(len(array)), "right")
        values = json_values(array.values[first : first + runs])
        return [values[place] for place in places.tolist()]
    if types.is_struct(kind):
        return _structs(array)
    if types.is_map(kind):
        return _nested(
            array, lambda first, count: _pairs(array.keys.slice(first, count), array.items.slice(first, count))
        )
    if types.is_list(kind) or types.is_large_list(kind):
        return _nested(array, lambda first, count: json_values(array.values.slice(first, count)))
    if types.is_list_view(kind) or types.is_large_list_view(kind):
        return _list_views(array)
    if types.is_union(kind):
        return _unions(array)
    if types.is_fixed_size_list(kind):
        return _fixed_lists(array)
    if types.is_temporal(kind):
        return _times(array)
    if types.is_decimal(kind):
        return _decimals(array)
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return _texts(array)
    return _converted(array.to_pylist(), _converter(kind))


def _by_codes(values: pyarrow.Array, codes: pyarrow.Array) -> list[Any]:
    """The values of codes. pyarrow decodes no dictionaries of views."""
    places = np.asarray(codes.fill_null(0)).astype(np.int64)
    used, places = np.unique(places, return_inverse=True)
    shown = list[Any]()
    for start, stop in _runs(used):
        shown += json_values(values[start:stop])
    return [
        shown[place] if is_valid else None
        for place, is_valid in zip(places.tolist(), codes.is_valid().to_pylist(), strict=True)
    ]


def _runs(numbers: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """The ranges of ascending numbers without gaps."""
    ends = [*(np.flatnonzero(np.diff(numbers) > 1) + 1).tolist(), len(numbers)]
    first = 0
    for end in ends if len(numbers) else ():
        yield int(numbers[first]), int(numbers[end - 1]) + 1
        first = end


def _texts(array: pyarrow.Array) -> list[Any]:
    try:
        return cast("list[Any]", array.to_pylist())
    except UnicodeDecodeError:
        from touchfs.tables.values.leaf_types import unchecked

        return _converted(unchecked(array).to_pylist(), _text)


def _text(value: bytes) -> str | dict[str, str]:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"~damaged": "text that is not UTF-8", "base64": _base64(value)}


def _interval(months: int = 0, days: int = 0, nanoseconds: int = 0) -> dict[str, int]:
    return {"months": months, "days": days, "nanoseconds": nanoseconds}


def _days(value: int) -> dict[str, int]:
    """An interval of two numbers of 32 bits, the lower one of days, the upper one of milliseconds."""
    days, millis = np.array([value]).view(np.int32).tolist()
    return _interval(days=days, nanoseconds=millis * 10**6)


_MARKED: dict[str, Callable[[Any], Any]] = {
    "months": lambda months: _interval(months=months),
    "days": _days,
    "damaged": lambda line: {"~damaged": line},
}


def _converter(kind: pyarrow.DataType) -> Callable[[Any], Any] | None:
    from pyarrow import types

    if types.is_floating(kind):
        return _float
    is_bytes = types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind)
    return _base64 if is_bytes or types.is_binary_view(kind) else None


def _converted(values: list[Any], convert: Callable[[Any], Any] | None) -> list[Any]:
    return values if convert is None else [None if value is None else convert(value) for value in values]


def _float(value: float) -> float | str:
    if math.isfinite(value):
        return float(value)
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _structs(array: pyarrow.StructArray) -> list[Any]:
    names = distinct([field.name for field in array.type])
    columns = [json_values(array.field(i)) for i in range(len(names))]
    valid = array.is_valid().to_pylist()
    rows = zip(*columns, strict=True) if columns else ((),) * len(array)
    return [dict(zip(names, row, strict=True)) if is_valid else None for is_valid, row in zip(valid, rows, strict=True)]


def _pairs(keys: pyarrow.Array, items: pyarrow.Array) -> list[Any]:
    return [list(pair) for pair in zip(json_values(keys), json_values(items), strict=True)]


def _nested(array: pyarrow.Array, convert: Callable[[int, int], list[Any]]) -> list[Any]:
    """Lists or maps. `convert` gets the range of their elements: a slice shares those of all rows."""
    ends, valid = array.offsets.to_pylist(), array.is_valid().to_pylist()
    first = ends[0]
    values = convert(first, ends[-1] - first)
    return [values[ends[i] - first : ends[i + 1] - first] if is_valid else None for i, is_valid in enumerate(valid)]


def _fixed_lists(array: pyarrow.FixedSizeListArray) -> list[Any]:
    size, first = array.type.list_size, array.offset * array.type.list_size
    values = json_values(array.values.slice(first, len(array) * size))
    return [
        values[i * size : (i + 1) * size] if is_valid else None
        for i, is_valid in enumerate(array.is_valid().to_pylist())
    ]


def _list_views(array: pyarrow.Array) -> list[Any]:
    values, starts, sizes = json_values(array.values), array.offsets.to_pylist(), array.sizes.to_pylist()
    valid = array.is_valid().to_pylist()
    return [
        values[start : start + size] if is_valid else None
        for start, size, is_valid in zip(starts, sizes, valid, strict=True)
    ]


def _unions(array: pyarrow.UnionArray) -> list[Any]:
    """The value of each row from the child that has it: at its offset, or in a sparse union at its row."""
    kind, buffers, rows = array.type, array.buffers(), len(array)

    def integers(number: int, width: str) -> NDArray[Any]:
        return np.frombuffer(buffers[number] or b"", width)[array.offset :][:rows]

    codes = integers(1, "i1")
    places = integers(2, "<i4") if kind.mode == "dense" else np.arange(rows)
    values: list[Any] = [None] * rows
    for i, code in enumerate(kind.type_codes):
        chosen = np.flatnonzero(codes == code)
        if len(chosen):
            first, last = int(places[chosen].min()), int(places[chosen].max())
            found = json_values(array.field(i)[first : last + 1])
            for row, place in zip(chosen.tolist(), (places[chosen] - first).tolist(), strict=True):
                values[row] = found[place]
    return values


def _decimals(array: pyarrow.Array) -> list[Any]:
    """Decimals as text, from their integers: pyarrow's own conversion fails for some scales that a file may have."""
    width, exponent = array.type.byte_width, -array.type.scale
    data, valid = array.buffers()[1], array.is_valid().to_pylist()
    stored = memoryview(data or b"")[array.offset * width : (array.offset + len(array)) * width]
    parts = (stored[start : start + width] for start in range(0, len(stored), width))
    numbers = (int.from_bytes(part, "little", signed=True) for part in parts)
    return [
        str(Decimal(f"{number}E{exponent}")) if is_valid else None
        for number, is_valid in zip(numbers, valid, strict=True)
    ]


def _times(array: pyarrow.Array) -> list[Any]:
    """Times as text, from their integers: Python's own have neither nanoseconds nor years above 9999."""
    import pyarrow

    types, kind = pyarrow.types, array.type
    if types.is_interval(kind):
        return _converted(array.to_pylist(), lambda value: _interval(*value))
    numbers = array.cast(pyarrow.int32() if kind.bit_width == 32 else pyarrow.int64())
    digits = 3 if types.is_date(kind) else _DIGITS[kind.unit]
    if types.is_date(kind) or types.is_timestamp(kind):
        of_day = 1 if types.is_date32(kind) else _SECONDS_OF_DAY * 10**digits
        days, rest = np.divmod(np.asarray(numbers.fill_null(0)).astype(np.int64), of_day)
        end = None if types.is_date(kind) else "Z" if kind.tz is not None else ""
        return _moments(days, rest, numbers.is_valid(), digits, end)
    spell = _clock if types.is_time(kind) else lambda seconds, fraction: f"{seconds}{fraction}s"
    return _converted(numbers.to_pylist(), lambda value: _spelled(value, digits, spell))


def int96_moments(array: pyarrow.Array) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The days since 1970 and the nanoseconds of the day of timestamps of 12 bytes; of nulls, any."""
    data = np.frombuffer(array.buffers()[1] or b"", _INT96)[array.offset :][: len(array)]
    more, rest = np.divmod(data["nanoseconds"], _NANOS_OF_DAY)
    days = data["day"].astype(np.int64) - _EPOCH + more
    for row in np.flatnonzero(abs(days) >= _SPARK_DAYS).tolist():  # Spark's numbers of 64 bits were wrapped before
        micros, nanos = divmod(int(days[row]) * _NANOS_OF_DAY + int(rest[row]), 1000)
        days[row], rest[row] = divmod(((micros + 2**63) % 2**64 - 2**63) * 1000 + nanos, _NANOS_OF_DAY)
    return days, rest


def _moments(
    days: NDArray[np.int64], rest: NDArray[np.int64], valid: pyarrow.Array, digits: int, end: str | None
) -> list[Any]:
    """Days since 1970 and times, in units of so many `digits` of a second. Without an `end` they are dates: a time only
    follows if the rest is not 0.
    """
    texts = np.datetime_as_string(days.astype("M8[D]")).tolist()
    return [
        None if not is_valid else date if end is None and not part else f"{date}T{_time(part, digits)}{end or ''}"
        for date, part, is_valid in zip(texts, rest.tolist(), valid.to_pylist(), strict=True)
    ]


def _time(value: int, digits: int) -> str:
    seconds, fraction = divmod(value, 10**digits)
    return _clock(seconds, f".{fraction:0{digits}d}" if digits else "")


def _spelled(value: int, digits: int, spell: Callable[[int, str], str]) -> str:
    seconds, fraction = divmod(abs(value), 10**digits)
    text = spell(seconds, f".{fraction:0{digits}d}".rstrip("0").rstrip(".") if digits else "")
    return f"-{text}" if value < 0 else text


def _clock(seconds: int, fraction: str) -> str:
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{fraction}"


def row_lines(names: Sequence[str], arrays: Sequence[pyarrow.Array], rows: int) -> list[bytes]:
    """The rows of columns as lines of JSON. The second of two columns of one name gets `~2`."""
    columns = [json_values(array) for array in arrays]
    values, names = zip(*columns, strict=True) if columns else ((),) * rows, distinct(names)
    objects = (dict(zip(names, row, strict=True)) for row in values)
    return [json.dumps(each, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n" for each in objects]
