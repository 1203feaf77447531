"""Overlays: a million rows joined with a million samples, beside indexing these.

parquet   a caption and a score of each key, in the order of no shard
jsonl     the same as JSON lines
again     the first one once more, when all is joined
memory    the most that the process holds
"""

from __future__ import annotations

import json
import resource
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from harness import at_most, own_cache_and_state, report, run

import touchfs

ROWS, SHARDS = 1_000_000, 20
SECONDS = {"parquet": 10, "jsonl": 20}
AGAIN, MEMORY = 0.5, 2 << 30


def write(place: Path) -> None:
    numbers = np.random.default_rng(0).permutation(ROWS)
    keys = [f"{number:09d}" for number in numbers.tolist()]
    for shard in range(SHARDS):
        lines = [json.dumps({"key": f"{number:09d}"}) for number in range(shard, ROWS, SHARDS)]
        (place / f"shards/{shard:02d}.jsonl").write_text("\n".join(lines) + "\n")
    captions = [f"a photo of the number {number} on a wall" for number in numbers.tolist()]
    table = pa.table({"key": keys, "caption": captions, "score": np.random.default_rng(1).random(ROWS)})
    pq.write_table(table, place / "notes.parquet")
    (place / "notes.jsonl").write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))


def seconds(place: Path, *overlay: Path) -> float:
    started = time.perf_counter()
    samples = touchfs.open(place / "shards", overlay=overlay)
    taken = time.perf_counter() - started
    assert not overlay or samples[7]["caption.txt"].endswith(b"on a wall")
    return taken


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        own_cache_and_state(place)
        (place / "shards").mkdir()
        write(place)
        indexing, rows = seconds(place), []
        for kind, wanted in SECONDS.items():
            taken = seconds(place, place / f"notes.{kind}")
            rows.append(
                (f"{kind}, beside {indexing:.1f} s of indexing", f"{taken:.1f} s", at_most(taken, wanted, " s"))
            )
        taken = seconds(place, place / "notes.parquet")
        rows.append(("again", f"{taken:.2f} s", at_most(taken, AGAIN, " s")))
        held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        rows.append(("memory", f"{held / 2**20:,.0f} MiB", at_most(held / 2**30, MEMORY / 2**30, " GiB")))
        report(f"an overlay of {ROWS:,} rows over {SHARDS} shards", rows)


if __name__ == "__main__":
    run(main)
