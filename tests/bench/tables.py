"""Tables: indexing and mounting a million rows of 8 columns, and random cells through the mount against tar members.

index   `make_catalog` of the table: rows a second, and bytes of the catalog for each file
keyed   the same of rows with keys, from arrays and, as for keys that repeat, file by file: their processor time in turn
mount   the command, once the table is indexed, until a row can be read
read    open, read and close random cells of 20 KB, and members of a tar with the same bytes: both mounted, in turn
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
import time
from contextlib import ExitStack
from functools import partial
from io import BytesIO
from pathlib import Path

import numpy as np
import pyarrow as pa
from harness import at_least, at_most, interleaved, mounted, open_read_close, own_cache_and_state, report, run

from touchfs.indexing.catalogs import make_catalog
from touchfs.indexing.tables import row_tables

ROWS, BATCH = 1_000_000, 1_000
CELLS, CELL, READS = 5_000, 20_000, 2_000
KEYED = 300_000
ROWS_A_SECOND, MOUNT_SECONDS, FILE_BYTES, ON_A_PAR, KEYED_LESS = 200_000, 1, 24, 0.9, 4
TOUCHFS = str(Path(sys.executable).with_name("touchfs"))


def write_table(path: Path) -> None:
    """Two columns of files and six others."""
    choose = np.random.default_rng(0)
    offsets = pa.py_buffer(np.arange(0, 20 * ROWS + 1, 20, dtype=np.int32))
    cells = pa.Array.from_buffers(pa.binary(), ROWS, [None, offsets, pa.py_buffer(choose.bytes(20 * ROWS))])
    columns = {"image": cells, "mask": cells, "text": pa.array(map(str, range(ROWS)))}
    columns |= {f"number {i}": pa.array(choose.random(ROWS)) for i in range(5)}
    table = pa.table(columns)
    with pa.ipc.new_file(str(path), table.schema) as writer:
        writer.write_table(table, max_chunksize=BATCH)


def write_keyed(path: Path) -> None:
    """A column of files, and keys in no order."""
    keys = [f"utterance-{number:09d}" for number in np.random.default_rng(0).permutation(KEYED).tolist()]
    columns = pa.table({"id": keys, "image": [b"\x89PNG"] * KEYED, "n": range(KEYED)})
    with pa.ipc.new_file(str(path), columns.schema) as writer:
        writer.write_table(columns, max_chunksize=BATCH)


def keyed_seconds(path: Path, catalog: Path, *, from_arrays: bool) -> float:
    key_columns = row_tables.key_columns
    if not from_arrays:
        row_tables.key_columns = lambda *arguments, **options: None
    start = time.process_time()
    make_catalog(str(path), str(catalog))
    row_tables.key_columns = key_columns
    return time.process_time() - start


def write_cells(table: Path, tar: Path) -> None:
    noise = np.random.default_rng(0).bytes(CELL + 256)
    cells = [noise[i % 256 : i % 256 + CELL] for i in range(CELLS)]
    columns = pa.table({"image": cells, "n": list(range(CELLS))})
    with pa.ipc.new_file(str(table), columns.schema) as writer:
        writer.write_table(columns, max_chunksize=BATCH)
    with tarfile.open(tar, "w") as archive:
        for i, cell in enumerate(cells):
            member = tarfile.TarInfo(f"{i:08d}.bin")
            member.size = CELL
            archive.addfile(member, BytesIO(cell))


def mount_seconds(source: Path, where: Path) -> float:
    start = time.perf_counter()
    subprocess.run([TOUCHFS, "mount", source, where], check=True, capture_output=True)
    (where / "shards" / "x" / "00500000" / "image.bin").read_bytes()
    took = time.perf_counter() - start
    subprocess.run([TOUCHFS, "umount", where], check=True, capture_output=True)
    return took


def main() -> None:
    with tempfile.TemporaryDirectory() as place, ExitStack() as stack:
        root = Path(place)
        own_cache_and_state(root)
        for name in ("table", "tar", "big"):
            (root / name).mkdir()
        big = root / "big" / "x.arrow"
        write_table(big)

        def index() -> float:
            start = time.perf_counter()
            make_catalog(str(big), str(root / "catalog"))
            return time.perf_counter() - start

        rate = ROWS / interleaved({"index": index}, 3)["index"]
        each = os.path.getsize(root / "catalog") / (3 * ROWS)
        subprocess.run([TOUCHFS, "index", root / "big"], check=True, capture_output=True)

        write_keyed(root / "keyed.arrow")
        ways = {
            str(way): partial(keyed_seconds, root / "keyed.arrow", root / "keyed", from_arrays=way)
            for way in (True, False)
        }
        keyed = interleaved(ways, 3)
        less = keyed["False"] / keyed["True"]

        # The quickest: what else the machine does is not the mount's.
        seconds = min(mount_seconds(root / "big", root / "mnt") for _ in range(3))
        write_cells(root / "table" / "x.arrow", root / "tar" / "x.tar")
        paths = {}
        for name in ("table", "tar"):
            stack.enter_context(mounted(root / name, root / f"{name}.mnt"))
            order = np.random.default_rng(1).integers(CELLS, size=READS).tolist()
            paths[name] = [str(root / f"{name}.mnt" / "shards" / "x" / f"{i:08d}.bin") for i in order]
        contestants = {name: partial(open_read_close, paths[name], CELL, READS) for name in paths}
        found = {name: READS / took for name, took in interleaved(contestants, 5).items()}
        report(
            f"Tables of {ROWS:,} rows and 8 columns, and {CELLS:,} cells of {CELL:,} bytes",
            [
                ("index", f"{rate:,.0f} rows/s", at_least(rate, ROWS_A_SECOND)),
                ("catalog", f"{each:.1f} bytes a file", at_most(each, FILE_BYTES)),
                ("keyed", f"{KEYED / keyed['True']:,.0f} rows/s", ""),
                ("file by file", f"{less:.1f} times the time", at_least(less, KEYED_LESS)),
                ("mount", f"{seconds:.2f} s", at_most(seconds, MOUNT_SECONDS, " s")),
                ("cells of a table", f"{found['table']:,.0f} a second", ""),
                ("members of a tar", f"{found['tar']:,.0f} a second", ""),
                ("ratio", f"{found['table'] / found['tar']:.2f}", at_least(found["table"] / found["tar"], ON_A_PAR)),
            ],
        )


if __name__ == "__main__":
    run(main)
