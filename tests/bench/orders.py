"""What orders mix, and what they cost.

A million samples in 100 shards: of how many shards the samples of a batch are, and how far neighbours of the data come
from each other, in our orders and in webdataset's (shards shuffled, then a buffer). And a pass in each order over
samples that take no time, against one in the order of the data: the library alone.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import numpy as np
import webdataset
from harness import at_most, grid, interleaved, report, run

from touchfs.node import LazyIndexedManifestIterator, LazyMixture

SAMPLES, SHARDS, BATCH, ROUNDS = 1_000_000, 100, 256, 7
SHARD = SAMPLES // SHARDS
PASS = 200_000


def ours(**order: Any) -> Callable[[], Iterator[int]]:
    return lambda: iter(LazyIndexedManifestIterator(range(SAMPLES), **order))


def buffered(size: int) -> Iterator[int]:
    """webdataset: its shards in a random order, their samples through its buffer."""
    shards = list(range(SHARDS))
    random.Random(1).shuffle(shards)
    samples = (number for shard in shards for number in range(shard * SHARD, (shard + 1) * SHARD))
    shuffled: Iterator[int] = webdataset.shuffle(size, initial=size, rng=random.Random(2))(samples)
    return shuffled


ORDERS: dict[str, Callable[[], Iterator[int]]] = {
    "of the data": ours(),
    "shuffle(7)": ours(shuffle=True, seed=7),
    "shuffle(7, window=160_000)": ours(shuffle=True, seed=7, window=160_000),
    "shuffle(7, window=160_000, lanes=4)": ours(shuffle=True, seed=7, window=160_000, lanes=4),
    "shuffle(7, window=16_000)": ours(shuffle=True, seed=7, window=16_000),
    "webdataset, a buffer of 10,000": lambda: buffered(10_000),
    "webdataset, a buffer of 1,000": lambda: buffered(1_000),
}


def mixes() -> None:
    rows = []
    for name, order in ORDERS.items():
        ordinals = np.fromiter(order(), np.int64, SAMPLES)
        batches = np.sort(ordinals[: SAMPLES // BATCH * BATCH].reshape(-1, BATCH) // SHARD, axis=1)
        shards = 1 + (np.diff(batches, axis=1) > 0).sum(axis=1)
        places = np.empty(SAMPLES, np.int64)
        places[ordinals] = np.arange(SAMPLES)
        apart = np.abs(np.diff(places))
        rows.append([name, f"{np.mean(shards):.1f}", f"{np.median(apart):,.0f}"])
    grid(
        f"{SAMPLES:,} samples in {SHARDS} shards, batches of {BATCH}",
        ["order", "shards in a batch", "between neighbours, samples"],
        rows,
    )


def costs() -> None:
    def taking(make: Callable[[], Any]) -> Callable[[], float]:
        def took() -> float:
            begun = time.process_time()
            for _ in islice(make().pairs(), PASS):
                pass
            return time.process_time() - begun

        return took

    def leaf(**order: Any) -> LazyIndexedManifestIterator:
        return LazyIndexedManifestIterator(range(SAMPLES), **order)

    batches = {"partition": "batches", "global_batch": BATCH}
    found = interleaved(
        {
            "plain": taking(leaf),
            "shuffled": taking(lambda: leaf(shuffle=True, seed=7)),
            "batches": taking(lambda: leaf(**batches)),
            "windowed": taking(lambda: leaf(shuffle=True, seed=7, window=16_000)),
            "windowed, 4 lanes, batches": taking(lambda: leaf(shuffle=True, seed=7, window=16_000, lanes=4, **batches)),
            "a mixture of two": taking(lambda: LazyMixture(leaf(), leaf(shuffle=True), weights=[3, 1])),
        },
        ROUNDS,
    )
    rows = []
    for name, seconds in found.items():
        rows.append((name, f"{seconds / PASS * 1e6:.2f} µs a sample, {seconds / found['plain']:.2f} x", ""))
    report(f"Taking {PASS:,} samples that cost nothing", rows)

    restored = []
    for _ in range(50):
        node = LazyIndexedManifestIterator(range(10 * SAMPLES), True, 7, window=160_000, lanes=4, **batches)
        state = node.begin().state() | {"position": 256 * random.Random(3).randrange(30_000)}
        begun = time.perf_counter()
        node.load_state_dict(state)
        next(node.pairs())
        restored.append(time.perf_counter() - begun)
    took = float(np.median(restored)) * 1e3
    report("Restoring anywhere in 10 million", [("until the next sample", f"{took:.2f} ms", at_most(took, 1, " ms"))])


def main() -> None:
    mixes()
    costs()


if __name__ == "__main__":
    run(main)
