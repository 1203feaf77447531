"""Tables as Parquet files, in the ways in which tools write them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from arrow_tables import PNG

# How pyarrow writes: codec, encodings and kinds of pages. `ours` are the settings of touchfs.
WAYS: dict[str, dict[str, Any]] = {
    "snappy": {},
    "zstd": {"compression": "zstd", "data_page_version": "2.0", "data_page_size": 300},
    "plain": {"compression": "none", "use_dictionary": False, "data_page_size": 300, "write_page_index": True},
    "plain-v2": {"compression": "none", "use_dictionary": False, "data_page_version": "2.0"},
    "dictionary": {"compression": "none", "use_dictionary": True},
    "no-statistics": {"compression": "gzip", "write_statistics": False},
    "foreign": {"store_schema": False, "version": "1.0"},
}


def everything(rows: int) -> pa.Table:
    """A table with columns of many types, some of them null."""
    numbers = range(rows)
    return pa.table(
        {
            "image": pa.array([None if n % 7 == 3 else PNG * n for n in numbers], pa.binary()),
            "text": pa.array([f"text {n}" * 20 for n in numbers], pa.large_string()),
            "when": pa.array([n * 10**9 for n in numbers], pa.timestamp("us", "UTC")),
            "series": pa.array([[float(n)] * (n % 5) for n in numbers], pa.list_(pa.float32())),
            "pair": pa.array([[n, n + 1] for n in numbers], pa.list_(pa.int16(), 2)),
            "audio": pa.array([{"bytes": b"%d" % n, "path": f"{n}.wav"} for n in numbers]),
            "map": pa.array([[("a", n)] for n in numbers], pa.map_(pa.string(), pa.int64())),
            "nothing": pa.nulls(rows),
            "flag": pa.array([n % 2 == 0 for n in numbers]),
        }
    )


def write_parquet(path: Path, table: pa.Table, way: str = "snappy", rows: int = 3) -> Path:
    """Write a table in row groups of `rows` rows."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, row_group_size=rows, **WAYS[way])
    return path
