"""The columns of a table that are files as a whole: numbers as one .npy, other values as JSON lines."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from touchfs.form.arrays import Npy
from touchfs.form.base import Form
from touchfs.form.tables.whole_column import NumberColumn, ValueColumn
from touchfs.format.arrow.column import numbers_of
from touchfs.format.arrow.schema import IpcSchema
from touchfs.shard.tables.columns import CellColumn
from touchfs.shard.tables.rows import Naming, WholeColumn
from touchfs.tables.field_paths import wanted_columns


def whole_columns(
    schema: IpcSchema, cells: Sequence[CellColumn], source: str, rows: int, has_nulls: Callable[[int], bool]
) -> list[WholeColumn]:
    """Return the whole columns of a table of so many rows, in the order of its schema.

    `cells` are its columns whose cells are files; `source` is the file that the forms open. `has_nulls` is asked only
    for columns of numbers.
    """
    fields = schema.fields
    naming = Naming([field.name for field in fields], is_nested=True)
    left_out = dict.fromkeys(cell.path for cell in cells if numbers_of([fields[cell.path[0]]]) is None)
    found = []
    for number, field in enumerate(fields):
        form: Form
        numbers = numbers_of([field])
        if numbers is not None and not has_nulls(number):
            dtype, shape = numbers
            form, extension = NumberColumn((number,), rows, Npy(dtype.str, shape)), "npy"
        elif number in wanted_columns(schema, frozenset(left_out)):
            form, extension = ValueColumn(number, tuple(path for path in left_out if path[0] == number)), "jsonl"
        else:
            continue
        name = naming.ending(number, extension).removeprefix(b"/")
        found.append(WholeColumn(field.name, name, source, form))
    return found
