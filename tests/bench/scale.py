"""A hundred million samples in 10,000 shards against a million in 100: does size cost anything?

    scale.py [SHARDS] [DIRECTORY]     10,000 samples each; the directory is kept, and used again

Samples are metainfo only, 43 bytes with a key of their own; a recording would be more bytes that nobody reads here.
Catalogs and the index of keys are what `touchfs index` makes. It is told first how much disk that takes: 170 bytes a
sample, 17 GB for all; and making it takes some 20 minutes on 2 cores.

What touches a shard for the first time opens its catalog or its index, and what comes back to it does not. Among 10,000
shards almost every random sample is a first touch, among 100 almost none. So both are measured, first touch against
first touch, in mounts and datasets newly opened for each round.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
from harness import TOUCHFS, at_most, mounted, own_cache_and_state, report, run

from touchfs import TouchDataset
from touchfs.containers.touchnet.layout import mmidx

SAMPLES = 10_000
SMALL = 100
DISK_BYTES = 170
ROUNDS = 5
TOUCHED = 40


def key(n: int) -> str:
    return f"s{n // SAMPLES:05d}-{n % SAMPLES:06d}"


def make_shard(path: Path) -> None:
    first = int(path.name) * SAMPLES
    metainfo = [b'{"key": "%s", "lang": "en"}' % key(first + i).encode() for i in range(SAMPLES)]
    path.mkdir(parents=True)
    (path / "metainfo.bin").write_bytes(b"".join(metainfo))
    index = mmidx.build_index(mmidx.DTYPES[1], np.array([len(each) for each in metainfo]))
    (path / "metainfo.idx").write_bytes(index)


def make(place: Path, shards: int) -> float:
    """Both datasets, the small one being the first shards of the large one; seconds of `touchfs index`, 0 if done."""
    needed = (shards + SMALL) * SAMPLES * DISK_BYTES
    print(f"{shards * SAMPLES:,} samples in {place}: {needed / 1e9:.1f} GB of disk", flush=True)
    if (place / "made").exists():
        return 0.0
    if shutil.disk_usage(place).free < needed * 1.1:
        sys.exit("not that much is free")
    paths = [place / name / f"{number:09d}" for name, n in (("small", SMALL), ("large", shards)) for number in range(n)]
    with ProcessPoolExecutor() as executor:
        for _ in executor.map(make_shard, paths, chunksize=8):
            pass
    subprocess.run([TOUCHFS, "index", place / "small"], check=True, stdout=subprocess.DEVNULL)
    begin = time.perf_counter()
    subprocess.run([TOUCHFS, "index", "--jobs", str(os.cpu_count()), place / "large"], check=True)
    (place / "made").touch()
    return time.perf_counter() - begin


def each(do: Callable[[int], object], numbers: Sequence[int]) -> float:
    """Microseconds for one."""
    begin = time.perf_counter()
    for n in numbers:
        do(n)
    return (time.perf_counter() - begin) / len(numbers) * 1e6


def visit(place: Path, name: str, shards: int, memory: dict[str, float]) -> dict[str, float]:
    """What each thing takes, in µs, in a mount and a TouchDataset that are new."""
    chosen = random.sample(range(shards), 2 * TOUCHED)
    first = {way: [shard * SAMPLES + random.randrange(SAMPLES) for shard in chosen[way::2]] for way in (0, 1)}
    again = [random.choice(chosen[::2]) * SAMPLES + random.randrange(SAMPLES) for _ in range(1000)]
    took = {}
    with mounted(place / name, place / f"mounted-{name}") as mount:
        by_key, listing = f"{mount.path}/by-key/", f"{mount.path}/shards/"
        took["look-up by key, first"] = each(lambda n: os.readlink(f"{by_key}{key(n)}.json"), first[0])
        took["look-up by key, again"] = each(lambda n: os.readlink(f"{by_key}{key(n)}.json"), again)
        took["ls of a shard, first"] = each(lambda n: os.listdir(f"{listing}{n // SAMPLES:09d}"), first[1])
        took["ls of a shard, again"] = each(lambda n: os.listdir(f"{listing}{n // SAMPLES:09d}"), first[1][:10])
        memory.update((process.split()[0], size) for process, size in mount.own_memory().items())
    begin = time.perf_counter()
    with TouchDataset(place / name) as dataset:
        took["TouchDataset, opening"] = (time.perf_counter() - begin) / shards * 1e6
        took["TouchDataset.get, first"] = each(lambda n: dataset.get(n, "metainfo"), first[0])
        took["TouchDataset.get, again"] = each(lambda n: dataset.get(n, "metainfo"), again)
        dataset.find(key(0))
        assert dataset.find(key(again[0])) == again[0]
        took["TouchDataset.find, first"] = each(lambda n: dataset.find(key(n)), first[0])
        took["TouchDataset.find, again"] = each(lambda n: dataset.find(key(n)), again)
    return took


def main() -> None:
    shards = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(sys.argv[2] if len(sys.argv) > 2 else temporary).absolute()
        place.mkdir(parents=True, exist_ok=True)
        own_cache_and_state(place)
        indexing = make(place, shards)
        begin = time.perf_counter()
        subprocess.run([TOUCHFS, "mount", place / "large", place / "m"], check=True, stdout=subprocess.DEVNULL)
        mounting = time.perf_counter() - begin
        subprocess.run([TOUCHFS, "umount", place / "m"], check=True)
        told = subprocess.run([TOUCHFS, "info", "--json", place / "large"], capture_output=True, check=True).stdout
        facts = json.loads(told)
        index = facts["index_overhead_percent"] / 100 * facts["bytes"] / facts["samples"]
        random.seed(1)
        memory: dict[str, float] = {}
        rounds = [
            {name: visit(place, name, n, memory) for name, n in (("large", shards), ("small", SMALL))}
            for _ in range(ROUNDS)
        ]
    rows = [("index, samples/s", f"{shards * SAMPLES / indexing:,.0f}" if indexing else "done before", "")]
    rows.append((".idx, catalog and keys, bytes a sample", f"{index:.0f}", ""))
    rows.append(("touchfs mount, until it returns", f"{mounting:.2f} s", at_most(mounting, 3, " s")))
    rows += [(f"own memory, {name}", f"{size:.0f} MB", at_most(size, 200, " MB")) for name, size in memory.items()]
    for way in rounds[0]["large"]:
        large, small = (statistics.median(r[name][way] for r in rounds) for name in ("large", "small"))
        rows.append((way, f"{large:,.1f} µs : {small:,.1f} µs = {large / small:.2f}", at_most(large / small, 2)))
    report(f"{shards * SAMPLES:,} samples in {shards:,} shards : {SMALL * SAMPLES:,} in {SMALL}", rows)


if __name__ == "__main__":
    run(main)
