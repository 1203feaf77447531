"""Data of another store: a web server on loopback with 20 ms of latency and 50 MB/s a connection.

- A sequential read of a shard against a file of fsspec with its defaults, and against `cat_ranges` of ranges of 4 MiB
  with as many requests at once.
- Random reads of 64 KiB by 32 readers against one, and against as many requests of aiohttp alone: what the server
  serves to a client in Python.
- A second pass over the samples of a mounted tar, in another order, against a mount of the same tar on the disk. And
  the same for reads in the library: what the path costs in Python.
"""

import asyncio
import os
import random
import subprocess
import sys
import tarfile
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import count as count_up
from pathlib import Path

import aiohttp
import fsspec
from harness import add, at_least, at_most, interleaved, mounted, own_cache_and_state, report, run
from latency_server import latency_server, measured_rate

from touchfs.source.data import DATA
from touchfs.source.remote.blocks import SMALL
from touchfs.source.remote.kept import KEPT
from touchfs.source.scratch.write_behind import WRITE_BEHIND

SIZE, READ, ROUNDS = 256 << 20, 128 << 10, 3
REQUESTS, RANDOM_READ, READERS, SAMPLES = 8, 64 << 10, 32, 1500
# Reads of one random reader.
EACH = 60
READS = {"one": EACH, "many": READERS * EACH, "bare": READERS * EACH}
fresh = count_up()


def sequential(file) -> float:
    begun = time.perf_counter()
    for start in range(0, SIZE, READ):
        file.read(start, min(READ, SIZE - start))
    return time.perf_counter() - begun


def at_random(file, seed: int, count: int) -> float:
    chooser = random.Random(seed)
    begun = time.perf_counter()
    for _ in range(count):
        file.read(chooser.randrange(SIZE - RANDOM_READ), RANDOM_READ)
    return time.perf_counter() - begun


def passes(url: str, local: str, unit: str) -> None:
    """Compare reads of a file whose pieces are kept with those of a local file. The first pass opens the pieces."""
    kept, file = DATA.open(url), DATA.open(local)
    kept.open()
    first = sequential(kept) / sequential(file)
    contestants = {
        "order, kept": lambda: sequential(kept),
        "order, local": lambda: sequential(file),
        "random, kept": lambda: at_random(kept, 1, 4000),
        "random, local": lambda: at_random(file, 1, 4000),
    }
    found = interleaved(contestants, ROUNDS)
    rows = [("in order, for the first time", f"{first:.2f} x", "")]
    for kind in ("order", "random"):
        ratio = found[f"{kind}, kept"] / found[f"{kind}, local"]
        rows.append((f"in {kind}", f"{ratio:.2f} x", ""))
    report(f"Reads of kept pieces / of a local file, {unit}", rows)


def second_pass(place: Path) -> None:
    """All samples of a tar through a mount, in random order and without the kernel's cache."""
    path, chooser = place / "samples" / "a.tar", random.Random(3)
    path.parent.mkdir()
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
        for number in range(SAMPLES):
            add(tar, f"{number:05}.bin", chooser.randbytes(100_000))
    (place / "at-url").mkdir()
    (place / "on-disk").mkdir()

    def one_pass(directory: Path) -> float:
        paths = [directory / "shards" / "a" / f"{number:05}.bin" for number in range(SAMPLES)]
        for path in paths:
            with open(path, "rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        chooser.shuffle(paths)
        begun = time.perf_counter()
        for path in paths:
            path.read_bytes()
        return time.perf_counter() - begun

    with (
        latency_server(0, file=str(path)) as server,
        mounted(f"{server}/a.tar", place / "at-url") as url,
        mounted(path, place / "on-disk") as disk,
    ):
        first = one_pass(url.path)
        time.sleep(1)  # until the last pieces are on the disk
        found = interleaved({"url": lambda: one_pass(url.path), "disk": lambda: one_pass(disk.path)}, ROUNDS)
    ratio = found["url"] / found["disk"]
    rows = [
        ("first pass, samples/s", f"{SAMPLES / first:,.0f}", ""),
        ("later passes, samples/s", f"{SAMPLES / found['url']:,.0f}", ""),
        ("from the disk, samples/s", f"{SAMPLES / found['disk']:,.0f}", ""),
        ("later passes / from the disk, time", f"{ratio:.2f} x", at_most(ratio, 1.5, " x")),
    ]
    report(f"{SAMPLES:,} samples of 100 kB of a mounted tar, at random", rows)


def first_pass(place: Path, number: list[int], server: str) -> float:
    """A read of a shard that is not kept yet."""
    number[0] += 1
    os.environ["TOUCHFS_SCRATCH_DIR"] = str(place / f"scratch-{number[0]}")
    seconds = sequential(DATA.open(f"{server}/{number[0]}"))
    WRITE_BEHIND.wait()
    KEPT.forget()
    return seconds


def many_readers(url: str) -> float:
    """Random readers of shards that nobody else reads."""
    begun = time.perf_counter()
    with ThreadPoolExecutor(READERS) as pool:
        list(pool.map(lambda seed: at_random(DATA.open(f"{url}-{seed}"), seed, EACH), range(READERS)))
    return time.perf_counter() - begun


async def bare_readers(url: str) -> float:
    """The same reads by a client that does nothing else, in whole pieces of 128 KiB as touchfs asks for them."""

    async def reader(seed: int) -> None:
        chooser = random.Random(seed)
        for _ in range(EACH):
            start = chooser.randrange(SIZE - RANDOM_READ)
            first, end = start // SMALL * SMALL, -(-(start + RANDOM_READ) // SMALL) * SMALL
            async with session.get(url, headers={"Range": f"bytes={first}-{end - 1}"}) as reply:
                await reply.read()

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        begun = time.perf_counter()
        await asyncio.gather(*map(reader, range(READERS)))
        return time.perf_counter() - begun


def plain(url: str) -> float:
    begun = time.perf_counter()
    with fsspec.open(url, "rb") as file:
        while file.read(READ):
            pass
    return time.perf_counter() - begun


def in_parallel(url: str) -> float:
    client = fsspec.filesystem("http", skip_instance_cache=True)
    starts = list(range(0, SIZE, 4 << 20))
    begun = time.perf_counter()
    client.cat_ranges([url] * len(starts), starts, [start + (4 << 20) for start in starts], batch_size=REQUESTS)
    return time.perf_counter() - begun


def main() -> None:
    if sys.argv[1:]:
        passes(*sys.argv[1:], "a new process")
        return
    os.environ["TOUCHFS_REQUESTS"] = str(REQUESTS)
    number = [0]
    with latency_server(1 << 20, 0, 0) as server:
        rate = asyncio.run(measured_rate(server))
        report("The server, without latency", [("ranged GETs a second", f"{rate:,.0f}", at_least(rate, 3000))])
    with tempfile.TemporaryDirectory() as directory:
        own_cache_and_state(Path(directory))
        os.environ["TOUCHFS_SCRATCH_DIR"] = str(Path(directory) / "scratch")
        second_pass(Path(directory))
    with tempfile.TemporaryDirectory() as directory, latency_server(SIZE) as server:
        place = Path(directory)
        found = interleaved(
            {
                "touchfs": lambda: first_pass(place, number, server),
                "fsspec": lambda: plain(f"{server}/plain"),
                "cat_ranges": lambda: in_parallel(f"{server}/ranges"),
            },
            ROUNDS,
        )
        rows = [(f"{name}, MB/s", f"{SIZE / seconds / 1e6:,.0f}", "") for name, seconds in found.items()]
        faster = found["fsspec"] / found["touchfs"]
        rows.append(("touchfs / a file of fsspec", f"{faster:.1f} x", at_least(faster, 3, " x")))
        share = found["cat_ranges"] / found["touchfs"]
        rows.append((f"touchfs / cat_ranges, {REQUESTS} requests", f"{share:.2f} x", at_least(share, 0.8, " x")))
        report(f"A shard in order: {SIZE >> 20} MiB in reads of {READ >> 10} KiB", rows)

        os.environ["TOUCHFS_REQUESTS"] = str(READERS)
        os.environ["TOUCHFS_SCRATCH_SIZE"] = "1"
        found = interleaved(
            {
                "one": lambda: at_random(DATA.open(f"{server}/one-{next(fresh)}"), 2, EACH),
                "many": lambda: many_readers(f"{server}/many-{next(fresh)}"),
                "bare": lambda: asyncio.run(bare_readers(f"{server}/bare")),
            },
            ROUNDS,
        )
        one, many, bare = (count / found[name] for name, count in READS.items())
        share, faster = many / bare, many / one
        is_served = share >= 0.8
        rows = [
            ("one reader, reads/s", f"{one:,.0f}", ""),
            (f"{READERS} readers, reads/s", f"{many:,.0f}", ""),
            (f"{READERS} requests of aiohttp alone, reads/s", f"{bare:,.0f}", ""),
            (f"{READERS} readers / one", f"{faster:.1f} x", "" if is_served else at_least(faster, 20, " x")),
            (
                f"{READERS} readers / aiohttp alone",
                f"{share:.2f} x",
                "" if faster >= 20 else at_least(share, 0.8, " x"),
            ),
        ]
        report(f"Random reads of {RANDOM_READ >> 10} KiB of shards that are not kept", rows)
        del os.environ["TOUCHFS_SCRATCH_SIZE"]
        KEPT.forget()

        url, local = f"{server}/kept", place / "local"
        os.environ["TOUCHFS_SCRATCH_DIR"] = str(place / "scratch")
        local.write_bytes(DATA.open(url).read(0, SIZE))
        WRITE_BEHIND.wait()
        passes(url, str(local), "the process that has fetched them")
        subprocess.run([sys.executable, __file__, url, str(local)], check=True)


if __name__ == "__main__":
    run(main)
