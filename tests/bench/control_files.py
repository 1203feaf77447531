"""Steps through `.touchfs/iterators/`: against a plain read of a control file as long, and over a large dataset.

A step is open, read and close of `next`. `error` is read in the same way, and what is written to it before is chosen so
that its text is as long as the path that a step tells; so the difference is what the step itself costs. The state is on
a RAM disk, as each step ends in a transaction there.

With `--durability fsync` the state is on the disk of the temporary directory (`TMPDIR`). Sixteen readers share
syncs, so what they gain depends on how long the disk takes for one, which is printed too. A second mount waits
`SYNC_MS` longer for each sync, as a slower disk would make it. The readers are processes.

The large dataset is one shard of which there are many, under names of their own, so that it takes no time to make and
no disk. In it steps are made without a mount, which would only hide a difference. Each round makes the same ones, so
all but the first find their shards open, as far as descriptors go: `ulimit -n` is to be 4,096 or more.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

from harness import (
    TOUCHFS,
    Mount,
    at_least,
    at_most,
    interleaved,
    make_shards,
    mounted,
    on_one_processor,
    own_cache_and_state,
    report,
    run,
)

from touchfs.dataset import Dataset
from touchfs.indexing import open_dataset
from touchfs.iterators.iterators import Iterators
from touchfs.store.store import StateStore

READERS, SECONDS, SYNCS = 16, 1.0, 200
SAMPLES, LARGE, BATCH = 10_000, 10_000_000, 10_000
COUNT, BATCHES, STEPS, ROUNDS = 2_000, 5, 500, 9
# How much longer a sync takes on the slower disk: then it can make some 280 in a second.
SYNC_MS = 3
SLOW = f"fsync + {SYNC_MS} ms"
RAM_DISK = "/dev/shm"


def read_whole(path: str) -> int:
    descriptor = os.open(path, os.O_RDONLY)
    size = 0
    while piece := os.read(descriptor, 1 << 20):
        size += len(piece)
    os.close(descriptor)
    return size


def read_as_python_does(path: str) -> None:
    """With the `fstat` and the read at the end that most programs make."""
    with open(path, "rb") as file:
        file.read()


def read_once(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    os.read(descriptor, 4096)
    os.close(descriptor)


def per_second(read: Callable[[str], object], path: str, count: int) -> Callable[[], float]:
    def run() -> float:
        begin = time.perf_counter()
        for _ in range(count):
            read(path)
        return count / (time.perf_counter() - begin)

    return run


def make_iterator(mount: Path, name: str, **spec: object) -> Path:
    path = mount / ".touchfs" / "iterators" / name
    path.mkdir()
    (path / "spec").write_text(json.dumps({"shuffle": 7, "repeat": True, **spec}))
    return path


def make_error(iterator: Path, length: int) -> None:
    """Have `error` tell a text of this length."""
    for wrong in range(length):
        try:
            (iterator / "batch").write_text(json.dumps("x" * wrong))
        except OSError:
            if (size := len((iterator / "error").read_text())) >= length:
                break
    assert size == length


def through_a_mount(daemon: Mount) -> None:
    mount = daemon.path
    one, many = make_iterator(mount, "one"), make_iterator(mount, "many", batch=BATCH)
    length = len((one / "peek").read_text())
    make_error(one, length)
    rates = interleaved(
        {
            "next": per_second(read_once, f"{one}/next", COUNT),
            "open": per_second(read_as_python_does, f"{one}/next", COUNT),
            "error": per_second(read_once, f"{one}/error", COUNT),
            "batch": per_second(read_whole, f"{many}/next", BATCHES),
        },
        ROUNDS,
    )
    with on_one_processor(os.getpid(), *daemon.processes()):
        together = interleaved({"next": per_second(read_once, f"{one}/next", COUNT)}, ROUNDS)["next"]
    step, plain, paths = rates["next"], rates["error"], rates["batch"] * BATCH
    report(
        f"Steps by one reader, {SAMPLES:,} samples shuffled, paths of {length} bytes",
        [
            ("open, read and close of next", f"{step:,.0f} steps/s, {1e6 / step:.0f} µs", at_least(step, 10_000)),
            ("the same by Python's open() and read()", f"{rates['open']:,.0f} steps/s", ""),
            ("the same, all on one processor", f"{together:,.0f} steps/s", ""),
            ("the same of a text as long", f"{plain:,.0f} reads/s: a step takes {plain / step:.2f}× as long", ""),
            (f"next with a batch of {BATCH:,}", f"{paths:,.0f} paths/s", at_least(paths, 1_000_000)),
        ],
    )


def steps_until(path: str, until: float) -> int:
    """The number of steps that this process makes until then."""
    steps = 0
    while time.monotonic() < until:
        read_once(path)
        steps += 1
    return steps


def by_readers(path: Path, readers: int) -> Callable[[], float]:
    """Steps per second of so many processes together."""

    def run() -> float:
        with ProcessPoolExecutor(readers, get_context("fork")) as processes:
            list(processes.map(time.sleep, [0.05] * readers))  # all are started
            until = time.monotonic() + SECONDS
            return sum(processes.map(steps_until, [str(path)] * readers, [until] * readers)) / SECONDS

    return run


def syncs_per_second(directory: Path) -> float:
    """How often a program that does nothing else can wait for the disk after writing two pages."""
    with tempfile.NamedTemporaryFile(dir=directory, buffering=0) as file:
        begin = time.perf_counter()
        for _ in range(SYNCS):
            file.write(bytes(8192))
            os.fdatasync(file.fileno())
        return SYNCS / (time.perf_counter() - begin)


def slow_syncs(place: Path) -> str:
    """A library that has each sync of a program take `SYNC_MS` longer."""
    library = place / "slow_syncs.so"
    source = """
        #define _GNU_SOURCE
        #include <dlfcn.h>
        #include <unistd.h>
        #define SLOW(name) int name(int fd) { usleep(%d); return ((int (*)(int)) dlsym(RTLD_NEXT, #name))(fd); }
        SLOW(fsync)
        SLOW(fdatasync)
    """
    text = (source % (SYNC_MS * 1000)).encode()
    subprocess.run(["gcc", "-shared", "-fPIC", "-O2", "-o", library, "-x", "c", "-"], input=text, check=True)
    return str(library)


def in_groups(mounts: dict[str, Mount], disk: Path) -> None:
    """Readers of one iterator, with each durability."""
    contestants: dict[str, Callable[[], float]] = {"syncs": lambda: syncs_per_second(disk)}
    for durability, daemon in mounts.items():
        path = make_iterator(daemon.path, "shared") / "next"
        contestants |= {f"{durability} {count}": by_readers(path, count) for count in (1, READERS)}
    rates = interleaved(contestants, ROUNDS)
    rows = [("fdatasync alone", f"{rates['syncs']:,.0f}/s", "")]
    for durability in mounts:
        one, many = rates[f"{durability} 1"], rates[f"{durability} {READERS}"]
        wanted = at_least(many / one, 5, "×") if durability == SLOW else ""
        rows.append((f"--durability {durability}", f"{one:,.0f} : {many:,.0f} steps/s = {many / one:.2f}×", wanted))
    report(f"Steps by one reader : by {READERS}", rows)


def stepping(dataset: Dataset, store: StateStore, position: int) -> Callable[[], float]:
    """Microseconds of a step, of those that follow a position."""
    iterators = Iterators(store, dataset)
    iterator = iterators.create(f"{dataset.samples} at {position}")
    iterators.write(iterator, "spec", {"shuffle": 7})
    state = json.loads(iterators.read(iterator, "token"))
    state["state"]["position"] = position

    def run() -> float:
        iterators.write(iterator, "token", state)
        begin = time.perf_counter()
        for _ in range(STEPS):
            iterators.read(iterator, "next")
        return (time.perf_counter() - begin) / STEPS * 1e6

    return run


def in_a_large_dataset(small: Dataset, store: StateStore) -> None:
    (shard,) = small.shards
    clones = [replace(shard, name=f"{number:09d}") for number in range(LARGE // SAMPLES)]
    large = Dataset.of(small.source, clones, "not needed")
    contestants = {
        (dataset.samples, where): stepping(dataset, store, position)
        for dataset in (small, large)
        for where, position in (("the start", 0), ("the end", dataset.samples - STEPS))
    }
    names = {f"{size} {where}": run for (size, where), run in contestants.items()}
    took = interleaved(names, ROUNDS)
    rows = []
    for where in ("the start", "the end"):
        mine, other = took[f"{LARGE} {where}"], took[f"{SAMPLES} {where}"]
        rows.append((f"at {where}", f"{mine:.0f} µs : {other:.0f} µs = {mine / other:.2f}", at_most(mine / other, 1.5)))
    report(f"A step among {LARGE:,} samples in {len(clones):,} shards : {SAMPLES:,} in one", rows)


def main() -> None:
    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        state = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=RAM_DISK)))
        own_cache_and_state(root)
        make_shards(root / "data", 1, SAMPLES, 64, sparse=True)
        subprocess.run([TOUCHFS, "index", root / "data"], check=True, stdout=subprocess.DEVNULL)
        with mounted(root / "data", root / "mnt", "--state-dir", str(state), "--durability", "os") as mount:
            through_a_mount(mount)
        with ExitStack() as all_mounts:
            mounts = {}
            for name in ("os", "fsync", SLOW):
                if name == SLOW:
                    os.environ["LD_PRELOAD"] = slow_syncs(root)
                options = ("--state-dir", str(root / f"state of {name}"), "--durability", name.split()[0])
                mounts[name] = all_mounts.enter_context(mounted(root / "data", root / f"mount of {name}", *options))
            del os.environ["LD_PRELOAD"]
            in_groups(mounts, root)
        store = stack.enter_context(closing(StateStore(str(state / "steps.sqlite"))))
        in_a_large_dataset(open_dataset(str(root / "data")), store)


if __name__ == "__main__":
    run(main)
