"""How the columns of a catalog's tables are stored: what follows from something else is left out.

A column is left out where all its values are equal, or where a rule gives them (`_RULES`), in all tables of a catalog,
as they share a schema. Directories have no samples and no files, so what stands there does not count. Numbers take as
few bytes as the largest one needs. So JSON lines in the order of their keys cost a name, an offset and a length each.

What is left out takes no memory either: it is read as a view of one number, or as a `range`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from touchfs.errors import FormatError
from touchfs.format.arrow import ipc as arrow_ipc

# The row of a file's directory, and so on: as in `touchfs.catalog.table`.
NUMBERS = ("parent", "kind", "ordinal", "part", "offset", "length", "size", "frames", "suffix", "keyed", "order")
TEXTS = ("name", "key", "inline")
# Rows, numbers of kinds and the like. Never negative: such a one would count from the end.
_NATURAL = frozenset({"parent", "kind", "ordinal", "part", "suffix", "keyed", "order"})
_OF_FILES = frozenset({"part", "size", "frames", "suffix", "keyed"})

TableColumns: TypeAlias = Mapping[str, arrow_ipc.Column]
Numbers: TypeAlias = Sequence[int]  # a memoryview or a range
# By column the number that all values are, or the name of a rule; "" for texts that are all empty.
Omitted: TypeAlias = dict[str, int | str]

_TYPES = ("<u1", "<u2", "<u4", "<i8")


def _files(table: TableColumns) -> NDArray[np.bool_]:
    is_file: NDArray[np.bool_] = _numbers(table, "kind") != 0
    return is_file


def _size_is_length(table: TableColumns) -> bool:
    files = _files(table)
    return bool(np.array_equal(np.asarray(table["size"])[files], np.asarray(table["length"])[files]))


def _order_is_rows(table: TableColumns) -> bool:
    """One directory, and the files by sample, as the rows are."""
    order = np.asarray(table["order"])
    return np.count_nonzero(~_files(table)) == 1 and np.array_equal(order[:-1], np.arange(1, len(order)))


def _ordinal_is_row(table: TableColumns) -> bool:
    """One directory, and in it a file a sample, in order."""
    ordinals = np.asarray(table["ordinal"])
    return _order_is_rows(table) and np.array_equal(ordinals[1:], np.arange(len(ordinals) - 1))


# By column the rules: a name, whether it holds, and what the values are, from the number of rows and other columns.
_RULES: Mapping[str, tuple[str, Callable[[TableColumns], bool], Callable[[int, Mapping[str, Numbers]], Numbers]]] = {
    "size": ("length", _size_is_length, lambda rows, columns: columns["length"]),
    "order": ("rows", _order_is_rows, lambda rows, columns: range(1, rows)),
    "ordinal": ("rows", _ordinal_is_row, lambda rows, columns: range(-1, rows - 1)),
}


def omit(tables: Sequence[TableColumns]) -> tuple[dict[str, str], list[dict[str, arrow_ipc.Column]], Omitted]:
    """The columns to be stored with their types, the tables with these columns only, and what was left out."""
    omitted: Omitted = {}
    schema: dict[str, str] = {}
    for name in TEXTS:
        if name != "name" and all(len(_text(table, name).data) == 0 for table in tables):
            omitted[name] = ""
        else:
            schema[name] = "binary"
    for name in NUMBERS:
        columns = [_numbers(table, name) for table in tables]
        rule = _RULES.get(name)
        counted = [c[_files(t)] if name in _OF_FILES else c for c, t in zip(columns, tables, strict=True)]
        low = min((int(each.min()) for each in counted if len(each)), default=0)
        high = max((int(each.max()) for each in counted if len(each)), default=0)
        if rule is not None and all(map(rule[1], tables)):
            omitted[name] = rule[0]
        elif low == high:
            omitted[name] = low
        else:
            schema[name] = next(t for t in _TYPES if np.iinfo(t).min <= low and high <= np.iinfo(t).max)
    return schema, [{name: _narrowed(table, name, schema[name]) for name in schema} for table in tables], omitted


def _narrowed(table: TableColumns, name: str, kind: str) -> arrow_ipc.Column:
    if kind == "binary":
        return _text(table, name)
    column = _numbers(table, name)
    return (np.where(_files(table), column, 0) if name in _OF_FILES else column).astype(kind)


def restore(batch: arrow_ipc.Batch, omitted: Omitted) -> tuple[dict[str, Numbers], dict[str, arrow_ipc.BinaryColumn]]:
    """All columns of a table: numbers and texts. Raises FormatError."""
    numbers: dict[str, Numbers] = {}
    for name in NUMBERS:
        what = omitted.get(name)
        if what is None:
            column = _numbers(batch.columns, name)
            if name in _NATURAL and column.dtype.kind != "u":
                raise FormatError(f"column {name!r} of the catalog may have negative numbers")
            numbers[name] = _view(column)
        elif type(what) is int and (0 if name in _NATURAL else -(2**63)) <= what < 2**63:
            numbers[name] = _repeated(what, batch.rows).data
        elif name not in _RULES or what != _RULES[name][0]:
            raise FormatError(f"column {name!r} of the catalog is left out by an unknown rule")
    for name, what in omitted.items():
        if name in _RULES and what == _RULES[name][0]:
            numbers[name] = _RULES[name][2](batch.rows, numbers)
    empty = arrow_ipc.BinaryColumn(_repeated(0, batch.rows + 1), memoryview(b""))
    return numbers, {name: empty if omitted.get(name) == "" else _text(batch.columns, name) for name in TEXTS}


def take(column: Numbers, places: NDArray[np.int64]) -> NDArray[np.int64]:
    """The values at these places."""
    return places + column.start if isinstance(column, range) else np.asarray(column)[places].astype(np.int64)


def as_array(column: Numbers) -> NDArray[np.integer[Any]]:
    return np.arange(column.start, column.stop) if isinstance(column, range) else np.asarray(column)


def _numbers(columns: TableColumns, name: str) -> arrow_ipc.Integers:
    column = columns.get(name)
    if column is None or isinstance(column, arrow_ipc.BinaryColumn):
        raise FormatError(f"column {name!r} of the catalog is missing or has another type")
    return column


def _text(columns: TableColumns, name: str) -> arrow_ipc.BinaryColumn:
    column = columns.get(name)
    if not isinstance(column, arrow_ipc.BinaryColumn):
        raise FormatError(f"column {name!r} of the catalog is missing or has another type")
    return column


def _repeated(number: int, count: int) -> NDArray[np.int64]:
    """As `np.broadcast_to`, which takes eight times as long."""
    return np.ndarray(count, np.int64, number.to_bytes(8, "little", signed=True), strides=(0,))


def _view(array: NDArray[Any]) -> memoryview[int]:
    """The same numbers as a memoryview, which gives ints at a quarter of NumPy's time."""
    if not array.flags.aligned:
        raise FormatError("a column of the catalog is not aligned")
    return array.data
