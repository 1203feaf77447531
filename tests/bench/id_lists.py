"""A list of 10 million ids, and the samples of a dataset that are in it: `where "key in @ids.parquet"`.

The dataset has 10 million rows with keys, of which the list has half, in another order. Indexing the rows is told, but
does not count.

    sort   the list is new
    join   the expression is new
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from time import perf_counter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from harness import at_most, own_cache_and_state, report, run

import touchfs
from touchfs.select.ids.names import open_file

SHARDS, ROWS = 10, 1_000_000
IDS = SHARDS * ROWS
DIGITS = np.frombuffer(b"0123456789abcdef", np.uint8)
SECONDS = 10


def uids(dice: np.random.Generator, count: int) -> pa.Array:
    """Random ids as DataComp has them: 32 hexadecimal digits."""
    digits = DIGITS[dice.integers(0, 16, 32 * count, dtype=np.uint8)]
    bounds = np.arange(0, 32 * count + 1, 32, dtype=np.int32)
    return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(bounds), pa.py_buffer(digits)])


def make(place: Path) -> tuple[Path, Path, int]:
    """The dataset, the list, and how many samples are in it: every second row of each shard, and as many others."""
    dice, chosen = np.random.default_rng(0), []
    (place / "samples").mkdir()
    for shard in range(SHARDS):
        keys = uids(dice, ROWS)
        table = pa.table({"id": keys, "n": np.arange(ROWS)})
        with pa.ipc.new_file(str(place / "samples" / f"{shard}.arrow"), table.schema) as writer:
            writer.write_table(table, max_chunksize=10_000)
        chosen.append(keys.take(pa.array(np.arange(0, ROWS, 2))))
    wanted = sum(map(len, chosen))
    ids = pa.concat_arrays([*chosen, uids(dice, IDS - wanted)])
    order = dice.permutation(IDS)
    pq.write_table(pa.table({"key": ids.take(pa.array(order))}), place / "ids.parquet")
    return place / "samples", place / "ids.parquet", wanted


def main() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        own_cache_and_state(Path(temporary))
        os.environ["TOUCHFS_SCRATCH_DIR"] = f"{temporary}/scratch"
        samples, ids, wanted = make(Path(temporary))
        start = perf_counter()
        dataset = touchfs.open(samples)
        indexed = perf_counter() - start
        start = perf_counter()
        open_file(str(ids), "key")
        middle = perf_counter()
        found = dataset.where(f"key in @{ids}")
        end = perf_counter()
        assert len(found) == wanted
        rows = [
            ("index", f"{indexed:.1f} s for {len(dataset):,} rows", ""),
            ("sort", f"{middle - start:.1f} s", ""),
            ("join", f"{end - middle:.1f} s", ""),
            ("together", f"{end - start:.1f} s", at_most(end - start, SECONDS, " s")),
        ]
        report(f"{len(found):,} of {len(dataset):,} samples in a list of {IDS:,} ids", rows)


if __name__ == "__main__":
    run(main)
