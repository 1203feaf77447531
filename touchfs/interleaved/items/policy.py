"""Policies for rows whose images could not be read, when they are written.

Source: nemo_curator/stages/interleaved/io/writers/base.py of NeMo Curator 1.4.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from touchfs.core.errors import ArgumentValueError, FormatError, MaterializeError
from touchfs.core.urls import shown
from touchfs.interleaved.items.columns import column_values
from touchfs.interleaved.items.file_column import from_file_columns
from touchfs.interleaved.layout.source_ref import parse_source_ref
from touchfs.shard.options import DROP_ROW, ERROR, ITEM_POLICIES, WARN

MaterializePolicy = Literal["error", "warn", "drop_row", "drop_sample"]

log = logging.getLogger(__name__)


def check_policy(policy: str) -> None:
    """Raise ArgumentValueError if a name is that of no policy."""
    if policy not in ITEM_POLICIES:
        raise ArgumentValueError(f"on_materialize_error is one of {', '.join(ITEM_POLICIES)}, not {policy!r}")


def apply_policy(table: pa.Table, on_materialize_error: MaterializePolicy = "error") -> pa.Table:
    """Return the table as the policy leaves it: `warn` keeps rows with an error, `drop_row` drops them, `drop_sample`
    drops their samples. Positions stay as they are.

    With `error`, MaterializeError is raised, which is also a RuntimeError, if any row has an error.
    """
    check_policy(on_materialize_error)
    if "materialize_error" not in table.column_names:
        return table
    errors = table["materialize_error"]
    has_error = errors.is_valid()
    count = len(errors) - errors.null_count
    if count == 0:
        return table
    if on_materialize_error == ERROR:
        first = table.slice(pc.index(has_error, True).as_py(), 1)
        raise MaterializeError(
            f"Materialization failed ({count} errors). First: {_described(first)}",
            key=next(iter(column_values(first, "sample_id"))),
        )
    if on_materialize_error == WARN:
        log.warning("materialize: %d errors (mode=warn, keeping rows)", count)
        return table
    if on_materialize_error == DROP_ROW:
        log.warning("materialize: dropped %d error rows", count)
        return table.filter(pc.invert(has_error))
    ids = table["sample_id"]
    failed = ids.filter(has_error).unique()
    log.warning("materialize: dropped %d samples with errors", len(failed))
    return table.filter(pc.invert(pc.is_in(ids, value_set=failed)))


def _described(row: pa.Table) -> str:
    """The error of a row, with the file that its locator names, and its position in the sample."""
    columns = ("materialize_error", "source_ref", "position")
    (error,), (text,), (position,) = (column_values(from_file_columns(row), name) for name in columns)
    names = []
    with suppress(FormatError):  # the error is that the locator cannot be parsed
        ref = parse_source_ref(text)
        names = [name for name in (shown(ref.path or ""), ref.member) if name and name not in error]
    return f"{': '.join([error, *names])}, at position {position}"
