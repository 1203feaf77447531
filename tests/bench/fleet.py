"""Steps of one iterator by two mounts, whose iterators are in one PostgreSQL, against a mount with its own SQLite.

The server's data and the states are on a RAM disk, so nobody waits for a disk: what is compared is the work of a step.
A step is open, read and close of `next`. The readers are processes, two of each mount.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from multiprocessing import get_context
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from control_files import make_iterator, per_second, read_whole, steps_until
from harness import TOUCHFS, at_least, interleaved, make_shards, mounted, own_cache_and_state, report, run
from postgres_server import Server

SAMPLES, BATCH, BATCHES, SECONDS, ROUNDS = 10_000, 10_000, 5, 1.0, 5
RAM_DISK = "/dev/shm"


def together(paths: list[Path]) -> Callable[[], float]:
    """Steps per second of all readers."""

    def run() -> float:
        with ProcessPoolExecutor(len(paths), get_context("fork")) as processes:
            list(processes.map(time.sleep, [0.05] * len(paths)))  # all are started
            until = time.monotonic() + SECONDS
            return sum(processes.map(steps_until, map(str, paths), [until] * len(paths))) / SECONDS

    return run


def main() -> None:
    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        state = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=RAM_DISK)))
        own_cache_and_state(root)
        make_shards(root / "data", 1, SAMPLES, 64, sparse=True)
        subprocess.run([TOUCHFS, "index", root / "data"], check=True, stdout=subprocess.DEVNULL)
        server = Server(RAM_DISK)
        stack.callback(server.end)
        shared = ["--state-store", server.url]
        fleet = [
            stack.enter_context(mounted(root / "data", root / name, "--state-dir", f"{state}/{name}", *shared))
            for name in ("one", "two")
        ]
        alone = stack.enter_context(mounted(root / "data", root / "alone", "--state-dir", f"{state}/alone"))
        single, batches = make_iterator(fleet[0].path, "single"), make_iterator(fleet[0].path, "batches", batch=BATCH)
        other = fleet[1].path / ".touchfs" / "iterators" / "single"
        local = make_iterator(alone.path, "batches", batch=BATCH)
        rates = interleaved(
            {
                "one": together([single / "next"]),
                "two": together([single / "next", other / "next"] * 2),
                "postgres": per_second(read_whole, f"{batches}/next", BATCHES),
                "sqlite": per_second(read_whole, f"{local}/next", BATCHES),
            },
            ROUNDS,
        )
        ratio = rates["postgres"] / rates["sqlite"]
        report(
            "Steps of one iterator in PostgreSQL",
            [
                ("one reader of one mount", f"{rates['one']:,.0f} steps/s", ""),
                ("two readers of each of two mounts", f"{rates['two']:,.0f} steps/s", at_least(rates["two"], 1_000)),
                (
                    f"batches of {BATCH:,} paths, PostgreSQL : SQLite",
                    f"{rates['postgres'] * BATCH:,.0f} : {rates['sqlite'] * BATCH:,.0f} paths/s = {ratio:.2f}×",
                    at_least(ratio, 0.8, "×"),
                ),
            ],
        )


if __name__ == "__main__":
    run(main)
