"""Rows of Arrow files: `ArrowBackend`, and how one reads them with pyarrow's tables.

A shard of 400 MB, 200,000 rows of an image of 2 kB and five small columns, in 20 batches and in 20,000.

    get_row    a row as Python values: `Table.slice(i, 1).to_pydict()` of the whole mapped table is the other way
    take       128 rows, and then every cell as a Python value: the other way slices a row of a batch for each index,
               found by bisection, and joins the slices
    batches    all batches in order, and the sum of a column and of all bytes: the other is pyarrow's reader
    cold       what of a file outside the page cache is in it after one row was read

What is compared takes turns in one process, files in the page cache but for the last; printed are medians of rounds.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import random
import tempfile
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from harness import at_least, at_most, interleaved, report, run

from touchfs.backend import ArrowBackend

ROWS, IMAGE = 200_000, 2_000
SCHEMA = pa.schema(
    {
        "image": pa.large_binary(),
        "label": pa.int64(),
        "name": pa.string(),
        "width": pa.int32(),
        "height": pa.int32(),
        "score": pa.float32(),
    }
)


def make_shard(path: Path, batches: int) -> None:
    rows = ROWS // batches
    noise = np.random.default_rng(0).bytes(IMAGE * 2)
    with pa.ipc.new_file(str(path), SCHEMA) as writer:
        for first in range(0, ROWS, rows):
            numbers = range(first, first + rows)
            columns = [
                pa.array([noise[i % IMAGE :][:IMAGE] for i in numbers], pa.large_binary()),
                pa.array(numbers, pa.int64()),
                pa.array([f"image {i:08d}" for i in numbers]),
                pa.array([224] * rows, pa.int32()),
                pa.array([256] * rows, pa.int32()),
                pa.array(np.arange(rows, dtype=np.float32)),
            ]
            writer.write_batch(pa.record_batch(columns, schema=SCHEMA))


class Tables:
    """The other way: the whole table of a mapped file, and slices of it."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.table = pa.ipc.open_file(pa.memory_map(self.path)).read_all()
        self.batches = self.table.to_batches()
        self.starts = list(accumulate(map(len, self.batches), initial=0))

    def get_row(self, i: int) -> dict[str, Any]:
        return {name: values[0] for name, values in self.table.slice(i, 1).to_pydict().items()}

    def take(self, indices: list[int]) -> pa.Table:
        slices = []
        for i in indices:
            number = bisect_right(self.starts, i) - 1
            slices.append(pa.Table.from_batches([self.batches[number].slice(i - self.starts[number], 1)]))
        return pa.concat_tables(slices)

    def iter_batches(self) -> Iterable[pa.RecordBatch]:
        reader = pa.ipc.open_file(pa.memory_map(self.path))
        return map(reader.get_batch, range(reader.num_record_batches))


def seconds(do: Callable[[Any], object], arguments: Iterable[Any]) -> float:
    """Seconds of each call. Results are dropped: keeping them would measure new memory."""
    count, begin = 0, time.perf_counter()
    for argument in arguments:
        do(argument)
        count += 1
    return (time.perf_counter() - begin) / count


def read_batches(batches: Iterable[pa.RecordBatch]) -> int:
    total = 0
    for batch in batches:
        total += int(batch.column(1).to_numpy().sum())
        total += int(np.frombuffer(batch.column(0).buffers()[2], np.uint64).sum() & 1)
    return total


def resident(path: Path) -> int:
    """Bytes of a file in the page cache."""
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        pages, address = np.zeros(-(-len(mapped) // mmap.PAGESIZE), np.uint8), np.frombuffer(mapped, np.uint8)
        where = (ctypes.c_void_p(address.ctypes.data), ctypes.c_size_t(len(mapped)), ctypes.c_void_p(pages.ctypes.data))
        ctypes.CDLL(None).mincore(*where)
        del address
        return int((pages & 1).sum()) * mmap.PAGESIZE


def cold_megabytes(path: Path, read: Callable[[], object]) -> float:
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    before = resident(path)
    read()
    return (resident(path) - before) / 1e6


def compare(what: str, ours: Callable[[], float], other: Callable[[], float], wanted: float) -> tuple[str, str, str]:
    medians = interleaved({"ours": ours, "other": other}, 9)
    ratio = medians["other"] / medians["ours"]
    figures = f"{medians['ours'] * 1e6:,.1f} µs, the other way {medians['other'] * 1e6:,.1f} µs"
    return what, f"{ratio:.2f}x as fast ({figures})", at_least(ratio, wanted, "x")


def measure(path: Path, batches: int, of_row: float) -> None:
    make_shard(path, batches)
    # Before anything else maps it: pages of a mapping stay in memory.
    cold = cold_megabytes(path, lambda: ArrowBackend(shard_paths=[path]).get_row(ROWS // 2))
    backend, tables = ArrowBackend(shard_paths=[path]), Tables(path)
    draw = random.Random(0)
    rows = [draw.randrange(ROWS) for _ in range(2000)]
    few = rows[: 4000 // max(batches // 100, 2)]
    takes = [[draw.randrange(ROWS) for _ in range(128)] for _ in range(20)]
    assert all(backend.get_row(i) == tables.get_row(i) for i in rows[:99])
    assert backend.take(takes[0]).to_pydict() == tables.take(takes[0]).to_pydict()

    def of_take(take: Callable[[list[int]], pa.Table]) -> float:
        return seconds(lambda chosen: take(chosen).to_pydict(), takes)

    report(
        f"{batches:,} batches",
        [
            compare("get_row", lambda: seconds(backend.get_row, rows), lambda: seconds(tables.get_row, few), of_row),
            compare("take(128), all cells", lambda: of_take(backend.take), lambda: of_take(tables.take), 1.5),
            compare(
                "all batches",
                lambda: seconds(read_batches, [backend.iter_batches()]),
                lambda: seconds(read_batches, [tables.iter_batches()]),
                0.9,
            ),
            ("one row of a cold file", f"{cold:.2f} MB read", at_most(cold, 2, " MB") if batches == 20 else ""),
        ],
    )


def main() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        for batches, of_row in ((20, 3), (20_000, 50)):
            measure(Path(temporary, f"{batches}.arrow"), batches, of_row)


if __name__ == "__main__":
    run(main)
