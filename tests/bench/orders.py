"""What orders mix, and what they cost.

A million samples in 100 shards: of how many shards the samples of a batch are, and how far neighbours of the data come
from each other, in our orders, in MosaicML's, and in webdataset's (shards shuffled, then a buffer). Then a pass in each
order against one in the order of the data, over samples that take no time (the library alone), and over those of a tar.
And how long it takes to go on anywhere.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

import numpy as np
import webdataset
from harness import at_most, grid, interleaved, own_cache_and_state, report, run
from mosaicml import get_shuffle

from touchfs.dataset.samples import DatasetSamples
from touchfs.indexing import open_dataset
from touchfs.node import LazyIndexedManifestIterator, LazyMixture
from touchfs.write import TarWriter

SAMPLES, SHARDS, BATCH, ROUNDS = 1_000_000, 100, 256, 7
SHARD = SAMPLES // SHARDS
PASS = 200_000
FILES, SIZE = 60_000, 16_000
BATCHES = {"partition": "batches", "global_batch": BATCH}


def ours(**order: Any) -> Callable[[], Iterator[int]]:
    return lambda: iter(LazyIndexedManifestIterator(range(SAMPLES), **order))


def buffered(size: int) -> Iterator[int]:
    """webdataset: its shards in a random order, their samples through its buffer."""
    shards = list(range(SHARDS))
    random.Random(1).shuffle(shards)
    samples = (number for shard in shards for number in range(shard * SHARD, (shard + 1) * SHARD))
    shuffled: Iterator[int] = webdataset.shuffle(size, initial=size, rng=random.Random(2))(samples)
    return shuffled


def streamed(algorithm: str) -> Iterator[int]:
    """MosaicML: shards in a random order, and samples within blocks of its default size."""
    order: Iterator[int] = iter(get_shuffle(algorithm, np.full(SHARDS, SHARD), 1, 1, 0, 1 << 18).tolist())
    return order


ORDERS: dict[str, Callable[[], Iterator[int]]] = {
    "of the data": ours(),
    "shuffle(7)": ours(shuffle=True, seed=7),
    "shuffle(7, window=160_000)": ours(shuffle=True, seed=7, window=160_000),
    "shuffle(7, window=160_000, lanes=4)": ours(shuffle=True, seed=7, window=160_000, lanes=4),
    "shuffle(7, window=16_000)": ours(shuffle=True, seed=7, window=16_000),
    "MosaicML, py1e": lambda: streamed("py1e"),
    "MosaicML, py1br": lambda: streamed("py1br"),
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

    found = interleaved(
        {
            "plain": taking(leaf),
            "shuffled": taking(lambda: leaf(shuffle=True, seed=7)),
            "batches": taking(lambda: leaf(**BATCHES)),
            "windowed": taking(lambda: leaf(shuffle=True, seed=7, window=16_000)),
            "windowed, 4 lanes, batches": taking(lambda: leaf(shuffle=True, seed=7, window=16_000, lanes=4, **BATCHES)),
            "a mixture of two": taking(lambda: LazyMixture(leaf(), leaf(shuffle=True), weights=[3, 1])),
        },
        ROUNDS,
    )
    rows = []
    for name, seconds in found.items():
        rows.append((name, f"{seconds / PASS * 1e6:.2f} µs a sample, {seconds / found['plain']:.2f} x", ""))
    report(f"Taking {PASS:,} samples that cost nothing", rows)


def real_passes(place: Path) -> None:
    """The same, with the bytes of each sample: files of a tar in the page cache.

    Bare preads of them take longer, too, in another order than that of the file: what they do is left out of a ratio.
    """
    noise = random.Random(1).randbytes(SIZE)
    with TarWriter(place / "data.tar") as tar:
        for number in range(FILES):
            tar.add(f"s{number:06}", {"bin": number.to_bytes(8, "little") + noise[8:]})
    samples = DatasetSamples(open_dataset(str(place / "data.tar")))
    offsets = [sample.content("bin").offset for sample in samples]

    def reading(**order: Any) -> Callable[[], float]:
        def took() -> float:
            begun = time.perf_counter()
            for sample in LazyIndexedManifestIterator(samples, **order):
                sample["bin"]
            return time.perf_counter() - begun

        return took

    def bare(**order: Any) -> Callable[[], float]:
        ordered = [offsets[number] for number in LazyIndexedManifestIterator(range(FILES), **order)]

        def took() -> float:
            begun = time.perf_counter()
            for offset in ordered:
                os.pread(file, SIZE, offset)
            return time.perf_counter() - begun

        return took

    orders: dict[str, dict[str, Any]] = {
        "plain": {},
        "shuffled": {"shuffle": True, "seed": 7},
        "batches": BATCHES,
        "windowed": {"shuffle": True, "seed": 7, "window": FILES // 10},
        "windowed, 4 lanes, batches": {"shuffle": True, "seed": 7, "window": FILES // 10, "lanes": 4, **BATCHES},
    }
    file = os.open(place / "data.tar", os.O_RDONLY)
    passes = {name: reading(**order) for name, order in orders.items()}
    preads = {f"{name}: preads": bare(**order) for name, order in orders.items()}
    found = {name: seconds / FILES * 1e6 for name, seconds in interleaved(passes | preads, ROUNDS).items()}
    os.close(file)
    rows = []
    for name in orders:
        took, alone = found[name], found[f"{name}: preads"]
        ratio = (took - alone + found["plain: preads"]) / found["plain"]
        wanted = at_most(ratio, 1.05, " x") if name in ("batches", "windowed") else ""
        rows.append((name, f"{took:.1f} µs a sample, its preads {alone:.1f}: {ratio:.2f} x", wanted))
    report(f"Reading {FILES:,} samples of {SIZE // 1000} kB", rows)


def restores() -> None:
    def leaf(**order: Any) -> LazyIndexedManifestIterator:
        return LazyIndexedManifestIterator(range(10 * SAMPLES), **order)

    orders: dict[str, Callable[[], Any]] = {
        "shuffled": lambda: leaf(shuffle=True, seed=7),
        "windowed": lambda: leaf(shuffle=True, seed=7, window=160_000),
        "windowed, 4 lanes, batches": lambda: leaf(shuffle=True, seed=7, window=160_000, lanes=4, **BATCHES),
        "a mixture of two": lambda: LazyMixture(leaf(), leaf(shuffle=True), weights={0: [3, 1], 5 * SAMPLES: [1, 1]}),
    }

    def restoring(make: Callable[[], Any], dice: random.Random) -> Callable[[], float]:
        def took() -> float:
            node = make()
            state = node.begin().state() | {"position": BATCH * dice.randrange(10 * SAMPLES // BATCH)}
            begun = time.perf_counter()
            node.load_state_dict(state)
            next(node.pairs())
            return time.perf_counter() - begun

        return took

    found = interleaved({name: restoring(make, random.Random(3)) for name, make in orders.items()}, 50)
    rows = [(name, f"{took * 1e3:.2f} ms", at_most(took * 1e3, 1, " ms")) for name, took in found.items()]
    report("Restoring anywhere in 10 million, until the next sample", rows)


def main() -> None:
    mixes()
    costs()
    with tempfile.TemporaryDirectory() as temporary:
        own_cache_and_state(Path(temporary))
        real_passes(Path(temporary))
    restores()


if __name__ == "__main__":
    run(main)
