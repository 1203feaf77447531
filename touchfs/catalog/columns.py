"""Compact storage for the columns of a catalog's tables: a column that can be computed is omitted.

A column is omitted if all its values are equal or follow from a rule (`_RULES`) in all tables of a catalog, as they
share a schema. For columns about files, the values of directories do not count. Tables whose files are named by
ordinals have more rules (`touchfs.catalog.derived`). Numbers take as few bytes as the largest one needs. So JSON lines
in the order of their keys cost a name, an offset and a length each.

An omitted column takes no memory either: it is read as a view of one number, or as a `range`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from touchfs.catalog.derived import DERIVED, DerivedNumbers, Implied, KindOrder, Parents, Suffixes
from touchfs.core.errors import FormatError
from touchfs.format.arrow.mapped_columns import BinaryColumn, Column, Integers
from touchfs.format.arrow.mapped_file import Batch

# `touchfs.catalog.table` describes these columns.
NUMBERS = ("parent", "kind", "ordinal", "part", "offset", "length", "size", "frames", "suffix", "keyed", "order")
TEXTS = ("name", "key", "inline")
# Columns of indexes. They are never negative: a negative index would count from the end.
_NATURAL = frozenset({"parent", "kind", "ordinal", "part", "suffix", "keyed", "order"})
_OF_FILES = frozenset({"part", "size", "frames", "suffix", "keyed"})

TableColumns: TypeAlias = Mapping[str, Column | Implied]
Numbers: TypeAlias = Sequence[int]  # a memoryview, a range or `DerivedNumbers`
# By omitted column, its constant value or the name of its rule; "" for texts that are all empty.
Omitted: TypeAlias = dict[str, int | str]

_TYPES = ("<u1", "<u2", "<u4", "<i8")


def _files(table: TableColumns) -> NDArray[np.bool_]:
    is_file: NDArray[np.bool_] = _numbers(table, "kind") != 0
    return is_file


def _size_is_length(table: TableColumns) -> bool:
    files = _files(table)
    return bool(np.array_equal(np.asarray(table["size"])[files], np.asarray(table["length"])[files]))


def _order_is_rows(table: TableColumns) -> bool:
    """True if the table has one directory, and its rows are in the order of the samples."""
    order = np.asarray(table["order"])
    return np.count_nonzero(~_files(table)) == 1 and np.array_equal(order[:-1], np.arange(1, len(order)))


def _ordinal_is_row(table: TableColumns) -> bool:
    """True if the table has one directory with one file per sample, in order."""
    ordinals = np.asarray(table["ordinal"])
    return _order_is_rows(table) and np.array_equal(ordinals[1:], np.arange(len(ordinals) - 1))


# Rules by column: the name, a test whether the rule holds, and the values from the number of rows and other columns.
_RULES: Mapping[str, tuple[str, Callable[[TableColumns], bool], Callable[[int, Mapping[str, Numbers]], Numbers]]] = {
    "size": ("length", _size_is_length, lambda rows, columns: columns["length"]),
    "order": ("rows", _order_is_rows, lambda rows, columns: range(1, rows)),
    "ordinal": ("rows", _ordinal_is_row, lambda rows, columns: range(-1, rows - 1)),
}


def omit(tables: Sequence[TableColumns]) -> tuple[dict[str, str], list[dict[str, Column]], Omitted]:
    """Return the types of the columns to store, the tables with these columns only, and the omitted columns."""
    omitted: Omitted = {}
    schema: dict[str, str] = {}
    implied = {name for name in DERIVED if all(isinstance(table[name], Implied) for table in tables)}
    omitted.update((name, DERIVED[name]) for name in DERIVED if name in implied)
    for name in (name for name in TEXTS if name not in implied):
        if name != "name" and all(len(_text(table, name).data) == 0 for table in tables):
            omitted[name] = ""
        else:
            schema[name] = "binary"
    stored = [name for name in NUMBERS if name not in implied]
    for name in stored:
        columns = [_numbers(table, name) for table in tables]
        rule = _RULES.get(name)
        counted = [c[_files(t)] if name in _OF_FILES else c for c, t in zip(columns, tables, strict=True)]
        low = min((int(each.min()) for each in counted if len(each)), default=0)
        high = max((int(each.max()) for each in counted if len(each)), default=0)
        if rule is not None and all(map(rule[1], tables)):
            omitted[name] = rule[0]
        elif low == high and (schema or name != stored[-1]):  # a batch without columns would have no rows
            omitted[name] = low
        else:
            schema[name] = next(t for t in _TYPES if np.iinfo(t).min <= low and high <= np.iinfo(t).max)
    return schema, [{name: _narrowed(table, name, schema[name]) for name in schema} for table in tables], omitted


def _narrowed(table: TableColumns, name: str, kind: str) -> Column:
    if kind == "binary":
        return _text(table, name)
    column = _numbers(table, name)
    return (np.where(_files(table), column, 0) if name in _OF_FILES else column).astype(kind)


def restore(
    batch: Batch, omitted: Omitted, kind_names: Sequence[str] = ()
) -> tuple[dict[str, Numbers], dict[str, BinaryColumn]]:
    """Return all columns of a table: numbers and texts. Raises FormatError if one is missing or invalid.

    Texts that are derived are empty: `touchfs.catalog.row_table` has them.
    """
    derived = {name for name, rule in DERIVED.items() if omitted.get(name) == rule}
    numbers: dict[str, Numbers] = {}
    for name in NUMBERS:
        value = omitted.get(name)
        if value is None:
            column = _numbers(batch.columns, name)
            if name in _NATURAL and column.dtype.kind != "u":
                raise FormatError(f"column {name!r} of the catalog may have negative numbers")
            numbers[name] = _view(column)
        elif type(value) is int and (0 if name in _NATURAL else -(2**63)) <= value < 2**63:
            numbers[name] = _repeated(value, batch.rows).data
        elif name not in derived and (name not in _RULES or value != _RULES[name][0]):
            raise FormatError(f"column {name!r} of the catalog is omitted by an unknown rule")
    for name, value in omitted.items():
        if name in _RULES and value == _RULES[name][0]:
            numbers[name] = _RULES[name][2](batch.rows, numbers)
    if "suffix" in derived:
        numbers["suffix"] = Suffixes(numbers["kind"], [0, *map(_suffix_size, kind_names)])
    if "parent" in derived:
        numbers["parent"] = Parents(numbers["ordinal"])
    if "order" in derived:
        numbers["order"] = KindOrder(numbers["ordinal"], numbers["kind"])
    empty = BinaryColumn(_repeated(0, batch.rows + 1), memoryview(b""))
    return numbers, {
        name: empty if omitted.get(name) == "" or name in derived else _text(batch.columns, name) for name in TEXTS
    }


def _suffix_size(name: str) -> int:
    """The bytes that a name of `FileKind` adds to a key: `/.jpg` four bytes, `//image.jpg` ten, `ERROR.txt` four."""
    ending = name[1:] if name.startswith("/") else "." + name.rpartition(".")[2]
    return len(ending.encode("utf-8", "surrogateescape"))


def take(column: Numbers, places: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the values at these places, shape `places.shape`."""
    if isinstance(column, DerivedNumbers):
        return column.take(places)
    return places + column.start if isinstance(column, range) else np.asarray(column)[places].astype(np.int64)


def as_array(column: Numbers) -> NDArray[np.integer[Any]]:
    """Return a column as a one-dimensional array; a stored column is not copied."""
    return np.arange(column.start, column.stop) if isinstance(column, range) else np.asarray(column)


def _numbers(columns: TableColumns, name: str) -> Integers:
    column = columns.get(name)
    if column is None or isinstance(column, BinaryColumn | Implied):
        raise FormatError(f"column {name!r} of the catalog is missing or has another type")
    return column


def _text(columns: TableColumns, name: str) -> BinaryColumn:
    column = columns.get(name)
    if not isinstance(column, BinaryColumn):
        raise FormatError(f"column {name!r} of the catalog is missing or has another type")
    return column


def _repeated(number: int, count: int) -> NDArray[np.int64]:
    """Return a constant array, as `np.broadcast_to` does, which takes eight times as long."""
    return np.ndarray(count, np.int64, number.to_bytes(8, "little", signed=True), strides=(0,))


def _view(array: NDArray[Any]) -> memoryview[int]:
    """Return an array as a memoryview: indexing it takes a quarter of NumPy's time."""
    if not array.flags.aligned:
        raise FormatError("a column of the catalog is not aligned")
    return array.data
