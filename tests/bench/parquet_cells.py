"""Parquet files: one image of 1 GB at random, and what is touched for it, against pyarrow's row groups.

    opened     the file is opened for each image: ours as `touchfs convert` writes it, theirs with the default settings
               (snappy, a row group of all rows), of which `read_row_group` reads the column
    kept       the same images again in the process that has the files open
    default    the same images of the file with the default settings, by our form: pages are decompressed
    cold       bytes of each file in the page cache after one image was read

What is compared takes turns in one process, files in the page cache; printed are medians of rounds, images a second.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from harness import at_least, at_most, interleaved, own_cache_and_state, report, resident, run

from touchfs.core.extent import Extent
from touchfs.form.ordinals import pack_ordinal
from touchfs.limits import LIMITS
from touchfs.source.data import DATA
from touchfs.tables.parquet.open_file import OpenParquet
from touchfs.tables.parquet.parquet_cell import ParquetCell
from touchfs.tables.parquet.write_settings import ROW_GROUP_BYTES, payload_settings

ROWS, IMAGE = 10_000, 100_000
PATH = (1,)
READS, ROUNDS, FASTER = 200, 5, 100
COLD_MAX = 2_000_000
SCHEMA = pa.schema({"id": pa.int64(), "image": pa.binary(), "text": pa.string()})


def write(path: Path, settings: dict[str, object], rows: int) -> None:
    """Write the file in row groups of so many rows."""
    noise = np.random.default_rng(0).bytes(IMAGE + ROWS)
    with pq.ParquetWriter(path, SCHEMA, **settings) as writer:
        for first in range(0, ROWS, rows):
            numbers = range(first, min(first + rows, ROWS))
            images = [noise[i : i + IMAGE] for i in numbers]
            writer.write_table(pa.table([numbers, images, [f"text {i}" for i in numbers]], SCHEMA), rows)


def opened(path: Path, row: int) -> bytes:
    """The image of a row; nothing is known of the file."""
    source = DATA.open(str(path))
    table = OpenParquet(source, LIMITS)
    group, first = table.locate(row)
    found = table.cell_ranges(PATH, group, first, 1)
    assert found is not None
    return source.read(int(found.offsets[0]), int(found.lengths[0]))


def of_pyarrow(path: Path, row: int) -> bytes:
    file = pq.ParquetFile(path)
    return bytes(file.read_row_group(0, columns=["image"]).column(0)[row].as_buffer())


def by_form(path: Path) -> Callable[[int], bytes]:
    """The image of a row by the form of its file."""
    extent = Extent(DATA.open(str(path)), 0, 0)

    def read(row: int) -> bytes:
        content = ParquetCell(PATH).content(extent, pack_ordinal(row), LIMITS)
        return bytes(content.read(0, content.size))

    return read


def per_second(read: Callable[[int], bytes], rows: list[int]) -> float:
    begin = time.perf_counter()
    for row in rows:
        assert len(read(row)) == IMAGE
    return len(rows) / (time.perf_counter() - begin)


def speed(ours: Path, theirs: Path) -> None:
    rows = np.random.default_rng(1).integers(0, ROWS, READS).tolist()
    assert opened(ours, rows[0]) == of_pyarrow(theirs, rows[0])
    kept, default, more = by_form(ours), by_form(theirs), iter(rows)
    per_second(kept, rows)
    found = interleaved(
        {
            "peer": lambda: per_second(lambda row: of_pyarrow(theirs, row), rows[:1]),
            "opened": lambda: per_second(lambda row: opened(ours, row), rows),
            "kept": lambda: per_second(kept, rows),
            "default": lambda: per_second(default, list(islice(more, 5))),
        },
        ROUNDS,
    )
    peer = found["peer"]
    shown = [
        ("pyarrow, read_row_group", f"{peer:,.2f} images/s", ""),
        ("touchfs, opened", f"{found['opened']:,.0f} images/s", at_least(found["opened"] / peer, FASTER, "x")),
        ("touchfs, kept", f"{found['kept']:,.0f} images/s", f"{found['kept'] / peer:,.0f}x"),
        ("touchfs, default settings", f"{found['default']:,.1f} images/s", f"{found['default'] / peer:,.1f}x"),
    ]
    report(f"An image at random of {ours.stat().st_size / 1e9:,.2f} GB", shown)


ONE_IMAGE = """
import sys
sys.path.insert(0, {directory!r})
from pathlib import Path
from parquet_cells import of_pyarrow, opened
{function}(Path({path!r}), 7_000)
"""


def cold(ours: Path, theirs: Path) -> None:
    rows = []
    for function, path in ((opened, ours), (of_pyarrow, theirs)):
        with open(path, "rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        before = resident(path)
        script = ONE_IMAGE.format(directory=str(Path(__file__).parent), function=function.__name__, path=str(path))
        subprocess.run([sys.executable, "-c", script], check=True)
        touched = resident(path) - before
        wanted = at_most(touched / 1e6, COLD_MAX / 1e6, " MB") if path == ours else ""
        rows.append(("touchfs" if path == ours else "pyarrow", f"{touched / 1e6:,.2f} MB", wanted))
    report("One image of a cold file: bytes in the page cache after it", rows)


def main() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        own_cache_and_state(root)
        ours, theirs = root / "ours.parquet", root / "theirs.parquet"
        write(ours, payload_settings(SCHEMA), ROW_GROUP_BYTES // IMAGE)
        write(theirs, {}, ROWS)
        cold(ours, theirs)
        speed(ours, theirs)


if __name__ == "__main__":
    run(main)
