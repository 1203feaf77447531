"""Locators as a column of Parquet's FILE groups, and as one of JSON.

A FILE group has no place for the member of a tar and the frame of a TIFF, so these are columns beside it.

Source: pull request 2284 of NeMo Curator, LogicalTypes.md of parquet-format.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from touchfs.core.errors import FormatError
from touchfs.interleaved.items.columns import binary_array, column_values, with_column
from touchfs.interleaved.layout.file_group import FileReference
from touchfs.interleaved.layout.source_ref import NO_SOURCE, SourceRef, format_source_ref, parse_source_ref

FILE_TYPE: pa.DataType = pa.struct(
    [
        ("uri", pa.string()),
        ("offset", pa.int64()),
        ("size", pa.int64()),
        ("content_type", pa.string()),
        ("checksum", pa.string()),
        ("inline", pa.large_binary()),
    ]
)
MEMBER_COLUMN, FRAME_COLUMN = "source_member", "source_frame_index"
_FIELDS = {field.name: field for field in FILE_TYPE}


def is_file_type(kind: pa.DataType) -> bool:
    """True if a column of this type holds FILE groups: a struct that has a `uri` and no field of another name."""
    names = [field.name for field in kind] if pa.types.is_struct(kind) else []
    return "uri" in names and set(names) <= _FIELDS.keys()


def from_file_columns(table: pa.Table) -> pa.Table:
    """Return the table with JSON in `source_ref` where it has FILE groups; the columns beside them are gone.

    Inline bytes and content types go to the columns of rows that have none. What is wrong with a group becomes the
    `materialize_error` of its row. Raises pyarrow.ArrowInvalid for a value that its type cannot have.
    """
    names = table.column_names
    if "source_ref" not in names or not is_file_type(table.schema.field("source_ref").type):
        return table
    kind = table.schema.field("source_ref").type
    groups = _values(table, "source_ref", pa.struct([_FIELDS[field.name] for field in kind]))
    members = _values(table, MEMBER_COLUMN, pa.string())
    frames = _values(table, FRAME_COLUMN, pa.int64())
    contents = _values(table, "binary_content", pa.large_binary())
    errors = _values(table, "materialize_error", pa.string())
    types = _values(table, "content_type", pa.string())
    refs: list[str | None] = [None] * len(groups)
    for i, group in enumerate(groups):
        if group is None or all(value is None for value in group.values()):
            continue
        file = FileReference(**group)
        types[i] = file.content_type if types[i] is None else types[i]
        if file.inline is not None:
            contents[i] = file.inline if contents[i] is None else contents[i]
        elif contents[i] is None and errors[i] is None:
            errors[i] = _problem(file)
        if file.uri is not None:
            offset = 0 if file.size is not None and file.offset is None else file.offset
            ref = SourceRef(file.uri, members[i], offset, file.size, frames[i], file.checksum)
            refs[i] = format_source_ref(ref)
    table = with_column(table, "source_ref", pa.array(refs, pa.string()))
    table = with_column(table, "content_type", pa.array(types, pa.string()))
    table = with_column(table, "binary_content", binary_array(contents))
    table = with_column(table, "materialize_error", pa.array(errors, pa.string()))
    return table.drop_columns([name for name in (MEMBER_COLUMN, FRAME_COLUMN) if name in names])


def _values(table: pa.Table, name: str, kind: pa.DataType) -> list[Any]:
    """The values of a column, which other writers may have given other types; nulls if there is no such column."""
    return table[name].cast(kind).to_pylist() if name in table.column_names else [None] * table.num_rows


def to_file_columns(table: pa.Table) -> pa.Table:
    """Return the table with FILE groups in `source_ref` where it has JSON, and the columns of members and frames.

    Raises FormatError if a value is no locator.
    """
    if "source_ref" not in table.column_names or is_file_type(table.schema.field("source_ref").type):
        return table
    refs = [parse_source_ref(text) for text in table.column("source_ref").to_pylist()]
    types = column_values(table, "content_type")
    groups = [_group(ref, content_type) for ref, content_type in zip(refs, types, strict=True)]
    table = with_column(table, "source_ref", pa.array(groups, FILE_TYPE))
    table = with_column(table, MEMBER_COLUMN, pa.array([ref.member for ref in refs], pa.string()))
    return with_column(table, FRAME_COLUMN, pa.array([ref.frame_index for ref in refs], pa.int32()))


def _group(ref: SourceRef, content_type: str | None) -> dict[str, Any] | None:
    if ref == NO_SOURCE:
        return None
    # An offset without a size is invalid in a group: then the member's name says what is meant.
    offset = None if ref.byte_size is None else ref.byte_offset
    file = FileReference(ref.path, offset, ref.byte_size, content_type, ref.checksum)
    return file._asdict()


def _problem(file: FileReference) -> str | None:
    try:
        file.range()
    except FormatError as error:
        return error.message
    return None
