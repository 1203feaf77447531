"""Tables as Arrow files, written by pyarrow in each format."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

PNG = b"\x89PNG\r\n\x1a\n" + b"p" * 100
JPG = b"\xff\xd8\xff" + b"j" * 200
FORMATS = ("file", "stream", "file-zstd", "stream-lz4")


def write_arrow(path: Path, table: pa.Table, form: str = "file", rows: int = 3) -> Path:
    """Write a table in batches of `rows` rows."""
    kind, _, codec = form.partition("-")
    options = pa.ipc.IpcWriteOptions(compression=codec or None)
    new = pa.ipc.new_file if kind == "file" else pa.ipc.new_stream
    with new(str(path), table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=rows)
    return path


def pictures(*more: tuple[str, Any]) -> pa.Table:
    """Seven rows with pictures as Hugging Face stores them, some of them null, and columns besides."""
    image = [
        {"bytes": JPG, "path": "a.jpeg"},
        {"bytes": PNG, "path": None},
        None,
        {"bytes": None, "path": "lost.png"},
        {"bytes": b"", "path": "empty.gif"},
        {"bytes": PNG, "path": "no extension"},
        {"bytes": JPG, "path": "x/y.z/../q.JPG"},
    ]
    columns = {
        "image": pa.array(image, pa.struct([("bytes", pa.binary()), ("path", pa.string())])),
        "label": pa.array([0, 1, None, 2, 1, 0, 2]),
        "text": pa.array(["one", "two", None, "vier", "fünf", "", "7"]),
    }
    return pa.table({**columns, **dict(more)})


def write_cache(
    directory: Path, shards: Sequence[pa.Table], counts: Sequence[int] | None = None, **members: Any
) -> Path:
    """A cache of Arrow shards. `members` replace those of its `_metadata.json`."""
    directory.mkdir(parents=True, exist_ok=True)
    counts = [len(shard) for shard in shards] if counts is None else counts
    names = [f"shard-{number:05d}.arrow" for number in range(len(shards))]
    for name, shard in zip(names, shards, strict=True):
        write_arrow(directory / name, shard)
    metadata = {
        "cache_format_version": 1,
        "format": "arrow",
        "layout": "arrow-shards",
        "schema_fingerprint": "0123456789abcdef",
        "num_rows": sum(counts),
        "num_shards": len(shards),
        "shard_row_counts": list(counts),
        "shard_filenames": names,
        "shard_size_target_bytes": None,
        **members,
    }
    (directory / "_metadata.json").write_text(json.dumps(metadata, indent=2))
    return directory
