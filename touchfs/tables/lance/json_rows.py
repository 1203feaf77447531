"""Rows of Lance datasets as JSON."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from touchfs.tables.lance.dataset import LanceTable
from touchfs.tables.values.field_paths import Path
from touchfs.tables.values.json_values import row_lines

if TYPE_CHECKING:
    import pyarrow


def json_rows(table: LanceTable, first: int, count: int, left_out: Collection[Path]) -> list[bytes]:
    """The rows from `first` on as JSON lines, without the cells at some paths; fewer at the end.

    Raises the errors of `LanceTable`.
    """
    taken = take_rows(table, first, count, left_out)
    if taken is None:
        return [b"{}\n"] * len(range(first, min(first + count, table.rows)))
    from touchfs.tables.values.sound import sound

    arrays = [sound(column.combine_chunks()) for column in taken.columns]
    return row_lines(taken.schema.names, arrays, taken.num_rows)


def take_rows(table: LanceTable, first: int, count: int, left_out: Collection[Path]) -> pyarrow.Table | None:
    """The rows from `first` on, without the cells at some paths; fewer at the end, and None if nothing is left.

    Raises the errors of `LanceTable`.
    """
    rows = range(first, min(first + count, table.rows))
    columns = [name for number, field in enumerate(table.schema) for name in _names((number,), field, "", left_out)]
    if not columns or not rows:
        return None
    return table.take(rows, columns).combine_chunks()


def _names(path: Path, field: pyarrow.Field, above: str, left_out: Collection[Path]) -> Iterator[str]:
    """The names of what is not left out of a column or of a child of one."""
    if path in left_out:
        return
    if not any(each[: len(path)] == path for each in left_out):
        yield above + field.name
        return
    for number in range(field.type.num_fields):
        yield from _names((*path, number), field.type.field(number), f"{above}{field.name}.", left_out)
