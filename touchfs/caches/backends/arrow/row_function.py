"""The function that reads a row is written for its columns and compiled, as `dataclasses` does it.

A function for each cell would take twice the time of one for the row, and rows are read in millions. The source has
numbers only: names of columns, which come from data, are in variables.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from touchfs.caches.backends.arrow.batch_cache import Columns
from touchfs.caches.backends.arrow.mapped_cells import (
    FETCHED,
    FIRST,
    SIZE,
    VALID,
    VALUES,
    MappedCells,
    is_number,
    offset_width,
)

ReadRow: TypeAlias = Callable[[int], dict[str, Any]]
_FORMATS = {np.dtype(code).str[1:]: code for code in "bBhHiIqQefd"}


def compile_row(
    names: Sequence[str], starts: list[int], cells: MappedCells | None, columns: Callable[[int], Columns]
) -> ReadRow:
    """Return the function that reads a row, which must exist, of batches that begin at the rows `starts`.

    `cells` reads the columns that it has, and `columns(number)` returns the others of a batch. The function raises
    FormatError for damaged data.
    """
    variables: dict[str, Any] = {f"name_{column}": name for column, name in enumerate(names)}
    variables.update(bisect=bisect_right, starts=starts, columns=columns)
    lines = _find_batch(starts)
    if cells is not None:
        variables.update(flat=cells.flat, view=cells.view, fetched=cells.fetched, cells=cells)
        lines.append(f"at = batch * {cells.stride}")
    for column in range(len(names)):
        if cells is None or column not in cells.slots:
            lines.append(f"cell_{column} = columns(batch)[{column}][row].as_py()")
        else:
            lines += _read_mapped(column, cells, variables)
    lines.append("return {" + ", ".join(f"name_{column}: cell_{column}" for column in range(len(names))) + "}")
    source = "\n".join(["def read_row(row):", *(f"    {line}" for line in lines)])
    exec(source, variables)
    # Otherwise the function and its variables would keep each other, and the mapped file.
    compiled: ReadRow = variables.pop("read_row")
    return compiled


def _find_batch(starts: list[int]) -> list[str]:
    """Return the lines that set `batch`, and make `row` one of it."""
    size = starts[1] if len(starts) > 1 else 0
    # Writers make batches of one size, but for the last: dividing is faster than bisecting.
    regular = range(0, size * (len(starts) - 1), size) if size else ()
    if size and starts[:-1] == list(regular) and starts[-1] - starts[-2] <= size:
        return [f"batch, row = divmod(row, {size})"]
    return ["batch = bisect(starts, row) - 1", "row -= starts[batch]"]


def _read_mapped(column: int, cells: MappedCells, variables: dict[str, Any]) -> list[str]:
    """Return the lines that set the variable `cell_COLUMN` from the mapped file."""
    slot, kind = cells.slots[column], cells.types[column]
    lines = (
        _read_number(column, slot, kind, variables) if is_number(kind) else _read_value(column, slot, kind, variables)
    )
    if not cells.has_nulls(column):
        return lines
    is_null = "bits >= 0 and not view[bits + (row >> 3)] >> (row & 7) & 1"
    read = [f"    {line}" for line in lines]
    return [f"bits = flat[at + {slot + VALID}]", f"if {is_null}:", f"    cell_{column} = None", "else:", *read]


def _read_number(column: int, slot: int, kind: pa.DataType, variables: dict[str, Any]) -> list[str]:
    place = f"flat[at + {slot + FIRST}]"
    if pa.types.is_boolean(kind):
        return [f"cell_{column} = view[{place} + (row >> 3)] >> (row & 7) & 1 == 1"]
    layout = struct.Struct("<" + _FORMATS[np.dtype(kind.to_pandas_dtype()).str[1:]])
    variables[f"unpack_{column}"] = layout.unpack_from
    return [f"cell_{column} = unpack_{column}(view, {place} + row * {layout.size})[0]"]


def _read_value(column: int, slot: int, kind: pa.DataType, variables: dict[str, Any]) -> list[str]:
    width = offset_width(kind)
    variables[f"unpack_{column}"] = struct.Struct("<ii" if width == 4 else "<qq").unpack_from
    lines = [
        f"start, end = unpack_{column}(view, flat[at + {slot + FIRST}] + row * {width})",
        f"if not 0 <= start <= end <= flat[at + {slot + SIZE}]:",
        f"    raise cells.damaged({column})",
        f"place = flat[at + {slot + VALUES}]",
        "start += place",
        "end += place",
        f"if not (fetched[start >> {FETCHED}] and fetched[end >> {FETCHED}]) or (end - start) >> {FETCHED}:",
        "    cells.fetch(start, end)",
    ]
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        return [*lines, f"cell_{column} = view[start:end].tobytes()"]
    read = f"    cell_{column} = view[start:end].tobytes().decode()"
    return [
        *lines,
        "try:",
        read,
        "except UnicodeDecodeError as error:",
        f"    raise cells.not_text({column}) from error",
    ]
