"""Every storage backend over small data, for the one suite that all of them pass: a new backend adds a row to CASES."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from touchfs.caches.backends.protocol import StorageBackend

Row = dict[str, Any]


def as_table_has_it(table: pa.Table) -> list[Row]:
    return table.to_pylist()


@dataclass(frozen=True)
class Case:
    """A backend that has nothing open, and the rows that it must have.

    `get_row` returns these rows as `of_row` compares them, and tables those that `of_table` returns for them.
    """

    backend: StorageBackend
    rows: list[Row]
    shard_rows: list[int]  # one number for each shard; empty for a table in memory
    of_row: Callable[[Row], Any] = dict
    of_table: Callable[[pa.Table], list[Any]] = as_table_has_it

    @property
    def expected(self) -> list[Any]:
        return [self.of_row(row) for row in self.rows]


def rows(count: int) -> list[Row]:
    return [
        {
            "id": i,
            "text": None if i % 5 == 3 else f"täxt {i}",
            "image": b"\x89PNG" + bytes([i % 256]) * (i * 37 % 300),
            "score": None if i % 7 == 6 else i / 3,
            "boxes": [{"x": i, "tags": ["a"] * (i % 3)}] * (i % 2),
        }
        for i in range(count)
    ]


SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("text", pa.string()),
        pa.field("image", pa.large_binary()),
        pa.field("score", pa.float32()),
        pa.field("boxes", pa.list_(pa.struct({"x": pa.int32(), "tags": pa.list_(pa.string())}))),
    ]
)


def as_stored(rows: list[Row]) -> list[Row]:
    """Rows as Arrow has them: float32 rounds."""
    return pa.Table.from_pylist(rows, SCHEMA).to_pylist()


def write_shard(path: Path, rows: list[Row], batch: int, codec: str | None = None, schema: pa.Schema = SCHEMA) -> Path:
    table = pa.Table.from_pylist(rows, schema)
    with (
        pa.OSFile(str(path), "wb") as file,
        pa.ipc.new_file(file, schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer,
    ):
        writer.write_table(table, max_chunksize=batch)
    return path


def read_all(path: Path) -> list[Row]:
    """All rows of a file, read in every way."""
    from touchfs.caches.backends.arrow_shards import ArrowBackend

    backend = ArrowBackend(shard_paths=[path])
    found = [backend.get_row(i) for i in range(backend.num_rows)]
    backend.take(list(range(backend.num_rows))[::-1]).to_pylist()
    backend.slice(1, 5).to_pylist()
    backend.table.to_pylist()
    return found


def arrow(directory: Path, counts: list[int], batch: int = 4, codec: str | None = None) -> Case:
    from touchfs.caches.backends.arrow_shards import ArrowBackend

    found, begin, paths = as_stored(rows(sum(counts))), 0, []
    for number, count in enumerate(counts):
        paths.append(write_shard(directory / f"shard-{number:05d}.arrow", found[begin : begin + count], batch, codec))
        begin += count
    backend = ArrowBackend(shard_paths=paths, shard_row_counts=counts, schema=SCHEMA)
    return Case(backend, found, counts)


def arrow_in_memory(directory: Path) -> Case:
    from touchfs.caches.backends.arrow_shards import ArrowBackend

    table = pa.concat_tables(pa.Table.from_pylist(part, SCHEMA) for part in (rows(23)[:9], [], rows(23)[9:]))
    return Case(ArrowBackend(table=table.slice(2)), as_stored(rows(23))[2:], [])


def lance(directory: Path, counts: list[int], blobs: str = "") -> Case:
    from caches.lance_cases import lance_rows

    return lance_rows(directory, counts, blobs)


def lance_video_frames(directory: Path, kind: str) -> Case:
    from caches.lance_cases import video_frames

    return video_frames(directory, kind)


CASES: dict[str, Callable[[Path], Case]] = {
    "arrow, one shard": lambda directory: arrow(directory, [23]),
    "arrow, shards": lambda directory: arrow(directory, [9, 1, 0, 13]),
    "arrow, a row a batch": lambda directory: arrow(directory, [9, 14], batch=1),
    "arrow, zstd": lambda directory: arrow(directory, [9, 14], codec="zstd"),
    "arrow, lz4": lambda directory: arrow(directory, [23], codec="lz4"),
    "arrow in memory": arrow_in_memory,
    "lance, one fragment": lambda directory: lance(directory, [23]),
    "lance, fragments": lambda directory: lance(directory, [9, 1, 13]),
    "lance, blobs": lambda directory: lance(directory, [9, 14], "2.2"),
    "lance, blobs of 2.0": lambda directory: lance(directory, [9, 14], "2.0"),
    "video frames": lambda directory: lance_video_frames(directory, "equal"),
    "video frames of two sizes": lambda directory: lance_video_frames(directory, "mixed"),
}
