"""Random small files and big sequential reads through touchfs, touchfs of before, and its peers, on the same tar.

`small_files.py [--busy] [--before REF] [--rounds N] [--only NAME]…`: in every round each daemon in turn makes a fresh
mount, with the data in the page cache. "cold" is the first time that a file is opened, "hot" the second. Figures are
files a second and the CPU time of all processes of the daemon for a file, medians over the rounds. Ratios are medians
of those of each round. With --busy each processor runs a busy loop, too. --before, or $TOUCHFS_BEFORE, names the
touchfs of before: any commit. A daemon that is "blocking" never polls before it sleeps.
"""

import argparse
import hashlib
import os
import random
import re
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from daemons import PEERS, Daemon, SmallFiles, all_daemons, checkout
from harness import add, at_least, at_most, busy_processors, cpu_seconds, grid, own_cache_and_state, report, run

MIB = 1 << 20
# `chosen` files for each number of threads, each opened twice.
COUNT, SIZE, CHOSEN, BIG, BIG_SIZE = 8_000, 32_768, 2_500, ("dd.bin", "computing.bin"), 128 * MIB
COLUMNS = ("1 thread cold", "1 thread hot", "4 threads cold", "4 threads hot")
SEQUENTIAL = ("find, entries/s", "dd, MB/s", "reads and computes, MB/s")
# Two runs of one and the same touchfs differ by as much.
NOISE = 0.05


def make_tar(tar: Path) -> SmallFiles:
    files = SmallFiles(tar, COUNT, SIZE, BIG, BIG_SIZE)
    dice = random.Random(16)
    sizes = {files.name(number): SIZE for number in range(COUNT)} | dict.fromkeys(BIG, BIG_SIZE)
    with tarfile.open(tar, "w", format=tarfile.GNU_FORMAT) as file:
        for name, size in sizes.items():
            add(file, name, dice.randbytes(size))
    return files


@dataclass(slots=True)
class Figures:
    """Of a column or a sequential row: what each daemon did in each round, in `unit` and CPU seconds a file."""

    rates: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    cpu: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def ratio(self, ours: str, theirs: str) -> float:
        return median(a / b for a, b in zip(self.rates[ours], self.rates[theirs], strict=True))

    def cpu_ratio(self, ours: str, theirs: str) -> float:
        return median(a / b for a, b in zip(self.cpu[ours], self.cpu[theirs], strict=True))


def read_files(paths: list[Path], threads: int) -> float:
    """Seconds until each file was opened, read and closed once, by so many threads."""

    def work(mine: list[Path]) -> None:
        for path in mine:
            descriptor = os.open(path, os.O_RDONLY)
            read.append(len(os.read(descriptor, MIB)))
            os.close(descriptor)

    read: list[int] = []
    workers = [threading.Thread(target=work, args=(paths[each::threads],)) for each in range(threads)]
    begin = time.perf_counter()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    seconds = time.perf_counter() - begin
    assert read == [SIZE] * len(paths), "a reader failed"
    return seconds


def small_round(daemon: Daemon, where: Path, chosen: list[int], figures: dict[str, Figures]) -> None:
    with daemon.mounted(where) as processes:
        for threads, numbers in ((1, chosen[:CHOSEN]), (4, chosen[CHOSEN:])):
            paths = [where / daemon.path(number) for number in numbers]
            for state in ("cold", "hot"):
                before = cpu_seconds(processes)
                seconds = read_files(paths, threads)
                column = figures[f"{threads} thread{'s' * (threads > 1)} {state}"]
                column.rates[daemon.name].append(len(paths) / seconds)
                column.cpu[daemon.name].append((cpu_seconds(processes) - before) / len(paths))


def seconds_of_dd(path: Path) -> float:
    """As dd says itself, without the time to start it."""
    done = subprocess.run(
        ["dd", f"if={path}", "of=/dev/null", "bs=1M"],
        env=os.environ | {"LC_ALL": "C"},
        stderr=subprocess.PIPE,
        check=True,
    )
    found = re.search(rb" copied, ([0-9.e-]+) s", done.stderr)
    assert found is not None
    return float(found[1])


def seconds_of_computing(path: Path) -> float:
    """A reader that hashes each block before it reads the next."""
    begin = time.perf_counter()
    digest = hashlib.sha1(usedforsecurity=False)
    with open(path, "rb", buffering=0) as file:
        while block := file.read(MIB):
            digest.update(block)
    return time.perf_counter() - begin


def sequential_round(daemon: Daemon, where: Path, figures: dict[str, Figures]) -> None:
    assert daemon.big is not None
    with daemon.mounted(where):
        begin = time.perf_counter()
        listed = subprocess.run(["find", where / Path(daemon.path(0)).parents[1]], stdout=subprocess.PIPE, check=True)
        rates = [listed.stdout.count(b"\n") / (time.perf_counter() - begin)]
        for seconds, name in zip((seconds_of_dd, seconds_of_computing), BIG, strict=True):
            rates.append(BIG_SIZE / 1e6 / seconds(where / daemon.big(name)))
    for column, rate in zip(SEQUENTIAL, rates, strict=True):
        figures[column].rates[daemon.name].append(rate)


def show(daemons: dict[str, Daemon], figures: dict[str, Figures], mode: str) -> None:
    rows = [
        [
            name,
            *(
                f"{median(figures[at].rates[name]):,.0f}  {median(figures[at].cpu[name]) * 1e6:.0f} µs"
                for at in COLUMNS
            ),
        ]
        for name in daemons
    ]
    grid(f"Random files of 32 KiB, {mode}: files/s, CPU of the daemon for a file", ["", *COLUMNS], rows)
    rows = [
        [name, *(f"{median(figures[at].rates[name]):,.0f}" for at in SEQUENTIAL)]
        for name in daemons
        if name in figures[SEQUENTIAL[0]].rates
    ]
    grid(f"Listing and reading in sequence, {mode}", ["", *SEQUENTIAL], rows)


def marks(daemons: dict[str, Daemon], figures: dict[str, Figures], is_busy: bool) -> list[tuple[str, str, str]]:
    """Each ratio that is wanted, and whether it was reached."""
    rows = []

    def judge(what: str, value: float, judged: Callable[[float, float, str], str], wanted: float) -> None:
        rows.append((what, f"{value:.2f}x", judged(value, wanted, "x")))

    reading = (*COLUMNS, *SEQUENTIAL[1:])
    if "before" in daemons:
        for column in COLUMNS:
            wanted = (2 if column[0] == "1" else 1.5) if is_busy else 1 - NOISE
            judge(f"{column}, against before", figures[column].ratio("touchfs", "before"), at_least, wanted)
            if is_busy:  # then it does not spin
                judge(f"{column}, CPU against before", figures[column].cpu_ratio("touchfs", "before"), at_most, 0.6)
        for column in SEQUENTIAL[1:]:
            judge(f"{column}, against before", figures[column].ratio("touchfs", "before"), at_least, 1 - NOISE)
    if "bare floor" in daemons:
        for column in (each for each in COLUMNS if each.endswith("cold")):
            judge(
                f"{column}: CPU against the bare floor",
                figures[column].cpu_ratio("touchfs", "bare floor"),
                at_most,
                1.4,
            )
    for peer in PEERS:
        if peer not in daemons:
            rows.append((peer, "", "not installed"))
            continue
        for column in reading:
            wanted = 1.5 if is_busy and peer == "ratarmount" and column in COLUMNS else 1
            ratio = figures[column].ratio("touchfs", peer)
            if peer == "squashfuse_ll" and column.endswith("hot"):
                rows.append((f"{column}, against {peer}", f"{ratio:.2f}x", "may be less"))
            else:
                judge(f"{column}, against {peer}", ratio, at_least, wanted)
        rows.append((f"find, against {peer}", f"{figures[SEQUENTIAL[0]].ratio('touchfs', peer):.2f}x", "may be less"))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--busy", action="store_true")
    parser.add_argument("--before", metavar="REF", default=os.environ.get("TOUCHFS_BEFORE"))
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--only", metavar="NAME", action="append")
    chosen = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))  # so that mounts, busy loops and worktrees end, too
    mode = "a busy loop on each processor" if chosen.busy else "idle"
    with tempfile.TemporaryDirectory() as temporary, ExitStack() as stack:
        place = Path(temporary)
        own_cache_and_state(place)
        files = make_tar(place / "small.tar")
        before = stack.enter_context(checkout(chosen.before)) if chosen.before else None
        daemons = all_daemons(files, place, before)
        if chosen.only:
            daemons = {name: daemon for name, daemon in daemons.items() if name in chosen.only}
        for daemon in daemons.values():  # those that make an index make it now
            with daemon.mounted(place / "mnt"):
                pass
        if chosen.busy:
            stack.enter_context(busy_processors())
        figures: dict[str, Figures] = defaultdict(Figures)
        for round_ in range(chosen.rounds or (3 if chosen.busy else 5)):
            numbers = random.Random(round_).sample(range(COUNT), 2 * CHOSEN)
            # Whoever comes first in a round is up to a third slower, so each does in turn.
            first = round_ % len(daemons)
            for daemon in (*list(daemons.values())[first:], *list(daemons.values())[:first]):
                small_round(daemon, place / "mnt", numbers, figures)
                if daemon.big is not None:
                    sequential_round(daemon, place / "mnt", figures)
        show(daemons, figures, mode)
        if "touchfs" in daemons:
            report(f"Wanted, {mode}: medians of the ratios of each round", marks(daemons, figures, chosen.busy))


if __name__ == "__main__":
    run(main)
