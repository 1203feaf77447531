"""Rows of items for tests, and where they come from."""

import tarfile
from pathlib import Path
from typing import Any

import pyarrow as pa

from touchfs.interleaved.items.batch import InterleavedBatch
from touchfs.interleaved.items.schema import INTERLEAVED_SCHEMA
from touchfs.interleaved.layout.source_ref import SourceRef, format_source_ref


def image_row(
    position: int = 0,
    path: str | None = None,
    member: str | None = None,
    offset: int | None = None,
    size: int | None = None,
    frame: int | None = None,
    checksum: str | None = None,
    **columns: Any,
) -> dict[str, Any]:
    """An image without bytes, and where they are."""
    ref = format_source_ref(SourceRef(path, member, offset, size, frame, checksum))
    row = {"sample_id": "s", "position": position, "modality": "image", "content_type": "image/png", "source_ref": ref}
    return row | columns


def text_row(position: int, text: str, **columns: Any) -> dict[str, Any]:
    return {"sample_id": "s", "position": position, "modality": "text", "text_content": text} | columns


def batch_of(rows: list[dict[str, Any]], *source_files: str, **others: Any) -> InterleavedBatch:
    extra = [name for row in rows for name in row if name not in INTERLEAVED_SCHEMA.names]
    schema = pa.schema([*INTERLEAVED_SCHEMA, *((name, pa.string()) for name in dict.fromkeys(extra))])
    return InterleavedBatch(pa.Table.from_pylist(rows, schema=schema), source_files=tuple(source_files), **others)


def ranges_of(path: Path) -> dict[str, tuple[int, int]]:
    """Offset and size of each member of a tar that is not compressed, by real tarfile."""
    with tarfile.open(path) as tar:
        return {member.name: (member.offset_data, member.size) for member in tar}


def contents(batch: InterleavedBatch) -> list[bytes | None]:
    found: list[bytes | None] = batch.table["binary_content"].to_pylist()
    return found


def errors(batch: InterleavedBatch) -> list[str | None]:
    found: list[str | None] = batch.table["materialize_error"].to_pylist()
    return found
