"""Parquet files in memory, with columns of every nesting and many small pages, and a source that checks each read."""

from __future__ import annotations

import io
import itertools
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from checked_source import CheckedSource

from touchfs.limits import LIMITS, Limits
from touchfs.tables.parquet.open_file import OpenParquet

CODECS = ("none", "snappy", "gzip", "brotli", "zstd", "lz4")
# Version of pages, offset index, dictionary
PAGES = tuple(itertools.product(("1.0", "2.0"), (False, True), (False, True)))


class ParquetSource(CheckedSource):
    """A file in memory. It notes what is read."""

    identity = None
    path = "memory.parquet"

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.size = len(data)
        self.ranges: list[tuple[int, int]] = []

    def open(self) -> None:
        pass

    def read(self, offset: int, length: int) -> bytes:
        self.ranges.append((offset, length))
        return bytes(super().read(offset, length))


def opened(data: bytes, limits: Limits = LIMITS) -> OpenParquet:
    return OpenParquet(ParquetSource(data), limits)  # type: ignore[arg-type]


def written(
    table: pa.Table, pages: tuple[str, bool, bool] = ("1.0", False, False), codec: str = "none", **more: Any
) -> bytes:
    """A file of a table in small pages and row groups of 40 rows."""
    version, has_index, has_dictionary = pages
    made = io.BytesIO()
    options = {
        "row_group_size": 40,
        "data_page_version": version,
        "write_page_index": has_index,
        "use_dictionary": has_dictionary,
        "compression": codec,
        "data_page_size": 100,
        "write_batch_size": 8,
    }
    pq.write_table(table, made, **{**options, **more})
    return made.getvalue()


def nested_table(rows: int = 100, seed: int = 0) -> pa.Table:
    """Columns flat and nested, with nulls everywhere that they may be."""
    random = np.random.default_rng(seed)

    def maybe(value: Any) -> Any:
        return None if random.random() < 0.2 else value

    def some(most: int, make: Any) -> list[Any]:
        return [make(i) for i in range(int(random.integers(0, most)))]

    def payload(_: int = 0) -> bytes:
        return random.bytes(int(random.integers(0, 30)))

    def image(i: int) -> Any:
        return maybe({"bytes": maybe(payload()), "path": maybe(f"p{i % 3}")})

    pair = pa.struct([("x", pa.int8()), ("y", pa.list_(pa.binary()))])
    return pa.table(
        {
            "id": np.arange(rows),
            "name": pa.array([maybe(f"name {i}") for i in range(rows)]),
            "fixed": pa.array([bytes([i % 256]) * 5 for i in range(rows)], pa.binary(5)),
            "flag": pa.array([maybe(bool(i % 2)) for i in range(rows)], pa.bool_()),
            "image": pa.array([image(i) for i in range(rows)]),
            "images": pa.array([maybe(some(4, image)) for _ in range(rows)]),
            "map": pa.array(
                [maybe(some(3, lambda i: (f"k{i}", maybe({"x": i, "y": some(3, payload)})))) for _ in range(rows)],
                pa.map_(pa.string(), pair),
            ),
            "deep": pa.array([[[{"a": [i], "b": "x"}]] * (i % 3) for i in range(rows)]),
            "large": pa.array(
                [some(3, lambda i: maybe(["t"] * i)) for _ in range(rows)], pa.large_list(pa.list_(pa.string()))
            ),
            "price": pa.array([maybe(i) for i in range(rows)], pa.decimal128(9, 2)),
        }
    )
