"""Batches for writers of interleaved samples, and what is in the files that they write."""

import json
import tarfile
from pathlib import Path
from typing import Any

import pyarrow as pa

from touchfs.interleaved.items.batch import InterleavedBatch
from touchfs.interleaved.items.schema import INTERLEAVED_SCHEMA

PNG = b"\x89PNG\r\n\x1a\n"
SOURCES = ("/data/b.tar", "/data/a.tar")


def metadata(sample_id: str = "s", **columns: Any) -> dict[str, Any]:
    return {
        "sample_id": sample_id,
        "position": -1,
        "modality": "metadata",
        "content_type": "application/json",
    } | columns


def text(position: int, content: str | None, sample_id: str = "s", **columns: Any) -> dict[str, Any]:
    row = {"sample_id": sample_id, "position": position, "modality": "text", "content_type": "text/plain"}
    return row | {"text_content": content} | columns


def image(position: int, data: bytes | None, sample_id: str = "s", **columns: Any) -> dict[str, Any]:
    row = {"sample_id": sample_id, "position": position, "modality": "image", "content_type": "image/png"}
    return row | {"binary_content": data} | columns


def item_table(rows: list[dict[str, Any]], types: dict[str, pa.DataType] | None = None) -> pa.Table:
    """A table of rows. Columns that are passed through are strings unless `types` says otherwise."""
    extra = dict.fromkeys(name for row in rows for name in row if name not in INTERLEAVED_SCHEMA.names)
    fields = [(name, (types or {}).get(name, pa.string())) for name in extra]
    return pa.Table.from_pylist(rows, schema=pa.schema([*INTERLEAVED_SCHEMA, *fields]))


def item_batch(
    rows: list[dict[str, Any]], types: dict[str, pa.DataType] | None = None, sources: tuple[str, ...] = SOURCES
) -> InterleavedBatch:
    return InterleavedBatch(item_table(rows, types), source_files=sources)


def read_tar(path: str | Path) -> dict[str, bytes]:
    """The members of a tar in their order, by real tarfile; names are unique."""
    with tarfile.open(path) as tar:
        names = tar.getnames()
        assert len(set(names)) == len(names)
        return {name: tar.extractfile(name).read() for name in names}  # type: ignore[union-attr]


def read_document(path: str | Path, key: str = "s") -> dict[str, Any]:
    """The JSON of a sample in a tar. It is strict: it has no NaN."""

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    document: dict[str, Any] = json.loads(read_tar(path)[f"{key}.json"], parse_constant=refuse)
    return document
