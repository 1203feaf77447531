"""Arrow columns of the values that the JSON of samples has beside texts and images.

    null only                null
    true and false           bool
    integers of 64 bits      int64
    numbers                  double, if no integer of over 53 bits is among them
    all else, or a mixture   string

A value of a string column that is no string becomes its JSON. So a list or an object always does, and a mixture of
types in one column loses nothing, where NeMo Curator stops with an error.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from touchfs.core.errors import FormatError

# Larger integers are not exact as doubles.
_EXACT = 2**53
# Each sample may have names of its own, and a table has a value for each row and column.
_COLUMNS_MAX = 10_000


class ColumnTypes:
    """The types of columns by the values in them. Columns are in the order in which they were first seen."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._kinds: dict[str, set[str]] = {name: set() for name in names}

    def add(self, values: Mapping[str, Any]) -> None:
        """Take note of a value for each of some columns. Raises FormatError if there are too many."""
        for name, value in values.items():
            kinds = self._kinds.setdefault(name, set())
            if value is not None:
                kinds.add(_kind(value))
        if len(self._kinds) > _COLUMNS_MAX:
            raise FormatError(f"the samples have over {_COLUMNS_MAX:,} fields, and each is a column: choose by fields=")

    def schema(self) -> list[tuple[str, pa.DataType]]:
        """Return the columns with their types."""
        return [(name, _type(kinds)) for name, kinds in self._kinds.items()]


def build_column(values: Iterable[Any], kind: pa.DataType) -> pa.Array:
    """Return values as an array of the type that `ColumnTypes` found for them."""
    if pa.types.is_string(kind):
        values = [value if value is None or isinstance(value, str) else _to_json(value) for value in values]
    return pa.array(values, kind, from_pandas=False)


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        if -_EXACT <= value <= _EXACT:
            return "integer"
        return "long" if -(2**63) <= value < 2**63 else "text"
    return "number" if isinstance(value, float) else "text"


def _type(kinds: set[str]) -> pa.DataType:
    if not kinds:
        return pa.null()
    if kinds == {"bool"}:
        return pa.bool_()
    if kinds <= {"integer", "long"}:
        return pa.int64()
    return pa.float64() if kinds <= {"integer", "number"} else pa.string()


def _to_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
