"""Random cells of 20 KB of a Lance dataset: through the mount, by pylance's own `take`, and the members of a tar with
the same bytes through the mount. A column of plain bytes and one of blobs, each cell opened, read and closed once.

The backing files are in the page cache; no cell is read twice, so nothing of the mounts is.
"""

import os
import random
import statistics
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import lance
import pyarrow as pa
from harness import TOUCHFS, add, at_least, mounted, own_cache_and_state, report, run

SIZE, COUNT, ROUNDS = 20_000, 500, 5
ROWS = 2 * ROUNDS * COUNT


def make(root: Path) -> None:
    cells = [random.Random(i).randbytes(SIZE) for i in range(ROWS)]
    plain, blob = (
        pa.field("data", pa.large_binary(), metadata=each) for each in (None, {"lance-encoding:blob": "true"})
    )
    for name, field in (("plain", plain), ("blobs", blob)):
        lance.write_dataset(pa.table([pa.array(cells, pa.large_binary())], pa.schema([field])), root / f"{name}.lance")
    with tarfile.open(root / "members.tar", "w", format=tarfile.GNU_FORMAT) as file:
        for row, data in enumerate(cells):
            add(file, f"{row:08d}.bin", data)


def main() -> None:
    with tempfile.TemporaryDirectory() as temporary, ExitStack() as stack:
        root = Path(temporary)
        own_cache_and_state(root)
        make(root)
        mounts = {}
        for source in ("plain.lance", "blobs.lance", "members.tar"):
            subprocess.run([TOUCHFS, "index", root / source], check=True, stdout=subprocess.DEVNULL)
            mounted_at = stack.enter_context(mounted(root / source, root / f"at-{source}")).path
            mounts[source] = mounted_at / "shards" / source.partition(".")[0]
        order = random.Random(1).sample(range(ROWS), ROWS)
        dataset = lance.dataset(root / "plain.lance")

        def through(source: str, threads: int) -> Callable[[], float]:
            def read(row: int) -> None:
                descriptor = os.open(f"{mounts[source]}/{row:08d}.bin", os.O_RDONLY)
                assert len(os.read(descriptor, SIZE)) == SIZE
                os.close(descriptor)

            return lambda: rate_of(read, threads)

        def take(row: int) -> None:
            assert len(dataset.take([row], columns=["data"]).column(0)[0].as_py()) == SIZE

        done = dict.fromkeys([*mounts, "take"], 0)
        current = ""

        def rate_of(read: Callable[[int], None], threads: int) -> float:
            """Each cell is read once in all rounds, so that no round finds what one before it left in a cache."""
            rows = order[done[current] : done[current] + COUNT]
            done[current] += COUNT
            with ThreadPoolExecutor(threads) as pool:
                begin = time.perf_counter()
                list(pool.map(read, rows, chunksize=1))
                return COUNT / (time.perf_counter() - begin)

        for threads in (1, 4):
            contestants: dict[str, Callable[[], float]] = {source: through(source, threads) for source in mounts}
            if threads == 1:
                contestants["take"] = lambda: rate_of(take, 1)
            rates: dict[str, list[float]] = {name: [] for name in contestants}
            for _ in range(ROUNDS):
                for current, contestant in contestants.items():
                    rates[current].append(contestant())
            found = {name: statistics.median(values) for name, values in rates.items()}
            tar = found["members.tar"]
            wanted = {"blobs.lance": ", " + at_least(found["blobs.lance"] / tar, 0.8, "x")}
            report(
                f"Random open+read+close of cells of 20 KB, {threads} thread{'s' * (threads > 1)}",
                [
                    (name, f"{rate:,.0f} cells/s", f"{rate / tar:.2f}x of a tar{wanted.get(name, '')}")
                    for name, rate in found.items()
                ],
            )


if __name__ == "__main__":
    run(main)
