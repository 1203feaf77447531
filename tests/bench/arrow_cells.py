"""Arrow files: the index of the cells of a column, against pyarrow's way; and what one cell of a cold file touches.

    index      offset and length of each cell of one of three columns: our footer, headers and offsets; pyarrow's map,
               its batches, and the addresses of their buffers
    cold       a file of 400 MB that is not in the page cache: bytes of it in the cache after one cell was read
    zstd       random cells of the same rows in compressed batches of 1,000: our form, with an empty scratch store and
               with what it has then, and pyarrow's batch for each cell

What is compared takes turns in one process, files in the page cache; printed are medians of the rounds.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
from harness import at_least, at_most, interleaved, own_cache_and_state, report, resident, run, seconds_of

from touchfs.core.extent import Extent, drive
from touchfs.format.arrow.batch import batch_layout
from touchfs.format.arrow.cells import cells
from touchfs.format.arrow.file import parse_arrow
from touchfs.limits import LIMITS
from touchfs.source.data import DATA
from touchfs.tables.arrow.packed import PackedCell, packed_detail

# Rows and batches. Some tools write one row a batch; a batch costs 30 µs of Python here, and 9 µs of C++ there.
SHAPES = [(20_000, 20), (20_000, 2_000), (20_000, 20_000), (1_000_000, 20), (1_000_000, 2_000), (1_000_000, 20_000)]
COLD_ROWS, CELL, COLD_BATCHES = 20_000, 20_000, 20
COLD_MAX, CELLS_A_SECOND, USUAL_ROWS = 2_000_000, 200_000, 50
PACKED_READS, PACKED_FIRST, PACKED_THEN = 300, 1, 50


def write(path: Path, rows: int, batches: int, size: int, codec: str | None = None) -> None:
    noise = np.random.default_rng(0).bytes(size + 256)
    with pa.OSFile(str(path), "wb") as file:
        writer = None
        for first in range(0, rows, rows // batches):
            numbers = range(first, first + rows // batches)
            images = pa.array([noise[i % 256 : i % 256 + size] for i in numbers], pa.large_binary())
            batch = pa.record_batch({"id": numbers, "image": images, "text": [f"text {i}" for i in numbers]})
            options = pa.ipc.IpcWriteOptions(compression=codec)
            writer = writer or pa.ipc.new_file(file, batch.schema, options=options)
            writer.write_batch(batch)
        assert writer is not None
        writer.close()


def own_index(path: str) -> np.ndarray:
    source = DATA.open(path)
    source.open()
    file = drive(parse_arrow(source.size), source)
    at = file.schema.path("image")
    found = [drive(cells(drive(batch_layout(file.schema, place), source), at), source) for place in file.batches]
    return np.stack(
        (np.concatenate([each.offsets for each in found]), np.concatenate([each.lengths for each in found]))
    )


def pyarrow_index(path: str) -> np.ndarray:
    map_ = pa.memory_map(path)
    base = map_.read_buffer().address
    map_.seek(0)
    reader, starts, lengths = pa.ipc.open_file(map_), [], []
    for number in range(reader.num_record_batches):
        array = reader.get_batch(number).column("image")
        _, offsets, values = array.buffers()
        ends = np.frombuffer(offsets, np.int64, len(array) + 1)
        starts.append(values.address - base + ends[:-1])
        lengths.append(np.diff(ends))
    return np.stack((np.concatenate(starts), np.concatenate(lengths)))


def index(root: Path) -> None:
    rows = []
    for count, batches in SHAPES:
        path = root / "x.arrow"
        write(path, count, batches, 10)
        assert (own_index(str(path)) == pyarrow_index(str(path))).all()
        medians = interleaved(
            {
                "touchfs": lambda: seconds_of(lambda: own_index(str(path))),  # noqa: B023
                "pyarrow": lambda: seconds_of(lambda: pyarrow_index(str(path))),  # noqa: B023
            },
            7,
        )
        own, theirs = medians["touchfs"], medians["pyarrow"]
        what = f"{count:,} rows, {batches:,} batches"
        wanted = at_least(count / own, CELLS_A_SECOND, " cells/s") if count // batches >= USUAL_ROWS else ""
        rows.append((what, f"{own * 1e3:,.1f} ms, {count / own / 1e6:,.2f} M/s", wanted))
        rows.append(("    pyarrow", f"{theirs * 1e3:,.1f} ms", f"touchfs is {theirs / own:.2f}x as fast"))
        path.unlink()
    report("Index of cells", rows)


ONE_CELL = {
    "touchfs": """
from touchfs.core.extent import drive
from touchfs.format.arrow.batch import batch_layout
from touchfs.format.arrow.cells import cells
from touchfs.format.arrow.file import parse_arrow
from touchfs.source.data import DATA
source = DATA.open(path)
source.open()
file = drive(parse_arrow(source.size), source)
layout = drive(batch_layout(file.schema, file.batches[7]), source)
found = drive(cells(layout, file.schema.path("image"), 500, 1), source)
assert len(source.read(int(found.offsets[0]), int(found.lengths[0]))) == found.lengths[0]
""",
    "pyarrow, get_batch": """
import pyarrow as pa
bytes(pa.ipc.open_file(pa.memory_map(path)).get_batch(7).column("image")[500].as_buffer())
""",
    "pyarrow, read_all": """
import pyarrow as pa
bytes(pa.ipc.open_file(pa.memory_map(path)).read_all().column("image")[7500].as_buffer())
""",
}


def cold(root: Path) -> None:
    path = root / "cold.arrow"
    write(path, COLD_ROWS, COLD_BATCHES, CELL)
    rows = []
    for name, script in ONE_CELL.items():
        with open(path, "rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        before = resident(path)
        subprocess.run([sys.executable, "-c", f"path = {str(path)!r}\n{script}"], check=True)
        touched = resident(path) - before
        wanted = at_most(touched / 1e6, COLD_MAX / 1e6, " MB") if name == "touchfs" else ""
        rows.append((name, f"{touched / 1e6:,.2f} MB", wanted))
    report(f"One cell of a cold file of {path.stat().st_size / 1e6:,.0f} MB: bytes in the page cache after it", rows)


def packed(root: Path) -> None:
    path = root / "zstd.arrow"
    write(path, COLD_ROWS, COLD_BATCHES, CELL, "zstd")
    source = DATA.open(str(path))
    source.open()
    file = drive(parse_arrow(source.size), source)
    at = file.schema.path("image")
    found = [drive(cells(drive(batch_layout(file.schema, place), source), at), source) for place in file.batches]
    chosen = np.random.default_rng(1).integers(0, COLD_ROWS, PACKED_READS).tolist()
    rows_each = COLD_ROWS // COLD_BATCHES

    def own() -> None:
        for row in chosen:
            held, i = found[row // rows_each], row % rows_each
            assert held.ranges is not None and held.codec is not None
            detail = packed_detail(int(held.offsets[i]), int(held.lengths[i]))
            content = PackedCell(held.codec).content(Extent(source, *held.ranges[0].tolist()), detail, LIMITS)
            assert len(content.read(0, content.size)) == CELL

    def theirs() -> None:
        with pa.ipc.open_file(pa.memory_map(str(path))) as reader:
            for row in chosen:
                batch = reader.get_batch(row // rows_each)
                assert len(bytes(batch.column("image")[row % rows_each].as_buffer())) == CELL

    took = {"touchfs, first": seconds_of(own), "touchfs, then": seconds_of(own), "pyarrow": seconds_of(theirs)}
    rows = [(name, f"{PACKED_READS / each:,.0f} cells/s", "") for name, each in took.items()]
    for i, wanted in enumerate((PACKED_FIRST, PACKED_THEN)):
        ratio = took["pyarrow"] / list(took.values())[i]
        rows[i] = (*rows[i][:2], f"{ratio:,.0f}x as fast as pyarrow, {at_least(ratio, wanted, 'x')}")
    report(f"{PACKED_READS} random cells of {CELL / 1e3:,.0f} kB, zstd, {rows_each:,} rows a batch", rows)


def main() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        own_cache_and_state(Path(temporary))
        index(Path(temporary))
        cold(Path(temporary))
        packed(Path(temporary))


if __name__ == "__main__":
    run(main)
