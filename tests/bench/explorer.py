"""Pages of `touchfs serve` over a million samples: the first one, with statistics and without, and lists at any place.

Beside that, what a GET of 32 KiB of a file takes at its 99th percentile: alone, and while two pictures are drawn. Then
the memory of the server: after 40 clients have got files, and after they have got all kinds of pages, too.

At last lists of a hundred million samples. Their 10,000 shards have names of their own, but the data and the catalog of
one: so each is opened as any other, and what is missing are reads of a disk. `scale.py` has such shards in full.
"""

from __future__ import annotations

import dataclasses
import http.client
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from harness import TOUCHFS, at_most, interleaved, make_shards, own_cache_and_state, processes_below, report, run

sys.path.append(str(Path(__file__).parent.parent))
from waiting import wait_until

from touchfs.dataset import Dataset
from touchfs.indexing import open_dataset
from touchfs.serve.access import HttpAccess, ServeAddress
from touchfs.serve.application import Application
from touchfs.serve.served_tree import ServedTree
from touchfs.serve.server import TreeServer

SHARDS, SAMPLES, AUDIO = 10, 100_000, 320_000
ROUNDS, GETS = 5, 400
CLIENTS, PLANTED = 40, 10_000
PAGES = (
    *("/", "/-/errors", "/-/samples", "/-/samples?sort=-size", "/-/samples?sort=random", "/-/samples?sort=duration"),
    *("/-/samples?where=text+contains+%22zz%22", "/-/sample/000000003/s00003-000001"),
    *("/-/wave/shards/000000002/s00002-000001.wav.svg", "/-/spectrogram/shards/000000002/s00002-000002.wav.png"),
)
FILE = "/shards/000000000/s00000-000000.wav"
LISTS = {
    "the first of a list": "from=0",
    "in the middle": "from=500000",
    "at the end": "from=999950",
    "in random order": "sort=random&from=700000",
}


@contextmanager
def serving(shards: Path) -> Iterator[tuple[int, int]]:
    """The port of a server that has just started, and its process."""
    command = [TOUCHFS, "serve", shards, "--http", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline().strip().rstrip("/").rpartition(":")[2]), process.pid
        finally:
            process.terminate()


def ask(port: int, path: str, **headers: str) -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", path, headers={"Accept": "text/html", **headers})
    answer = connection.getresponse()
    body = answer.read()
    assert answer.status in (200, 206), body[:200]
    connection.close()
    return body


def seconds(port: int, path: str, **headers: str) -> float:
    begin = time.perf_counter()
    ask(port, path, **headers)
    return time.perf_counter() - begin


def first_page(shards: Path, before: Callable[[], object]) -> Callable[[], float]:
    def opened() -> float:
        before()
        with serving(shards) as (port, _):
            return seconds(port, "/")

    return opened


def forget(root: Path) -> None:
    for path in root.rglob("*.statistics.json"):
        path.unlink()


def slowest(port: int) -> float:
    """The 99th percentile."""
    return float(np.percentile([seconds(port, FILE, Range="bytes=0-32767") for _ in range(GETS)], 99))


def beside_pictures(port: int) -> float:
    """The same, while two clients ask for pictures one after the other."""
    done = threading.Event()

    def draw(begin: int) -> None:
        for number in range(begin, SAMPLES, 2):
            if done.is_set():
                return
            ask(port, f"/-/spectrogram/shards/000000001/s00001-{number:06d}.wav.png")

    clients = [threading.Thread(target=draw, args=(begin + int(time.time()) % 1000 * 90,)) for begin in (0, 1)]
    for client in clients:
        client.start()
    try:
        return slowest(port)
    finally:
        done.set()
        for client in clients:
            client.join()


def memory(pid: int) -> float:
    """Megabytes of a process and those that it has started, shared ones by shares."""
    rollups = [Path(f"/proc/{each}/smaps_rollup").read_text() for each in processes_below(pid)]
    return sum(int(text.partition("\nPss:")[2].split()[0]) for text in rollups) / 1024


def by_many(port: int, paths: list[str]) -> Counter[int]:
    """How often each status was answered to clients at once."""

    def status(path: str) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("GET", path, headers={"Accept": "text/html"})
        answer = connection.getresponse()
        answer.read()
        connection.close()
        return answer.status

    with ThreadPoolExecutor(CLIENTS) as pool:
        return Counter(pool.map(status, paths))


def memory_of_pages(shards: Path) -> list[tuple[str, str, str]]:
    with serving(shards) as (port, pid):
        by_many(port, [FILE.replace("000000.wav", f"{number:06d}.wav") for number in range(10 * CLIENTS)])
        before = memory(pid)
        ask(port, "/")
        wait_until(lambda: b"data-counting" not in ask(port, "/"))
        answered = by_many(port, [path for path in PAGES for _ in range(CLIENTS)])
        more = memory(pid) - before
    refused = sum(answered.values()) - answered[200]
    return [
        ("after files", f"{before:.0f} MB", ""),
        ("more after all pages", f"{more:.0f} MB", at_most(more, 64, " MB")),
        ("refused", f"{refused} of {sum(answered.values())}", at_most(refused, 0)),
    ]


def planted(shards: Path) -> Dataset:
    """Many shards of other names, each of which is the first one."""
    dataset = open_dataset(str(shards))
    first = dataset.shards[0]
    named = [dataclasses.replace(first, name=f"{number:09d}") for number in range(PLANTED)]
    return Dataset.of(dataset.source, named, "these have no keys of their own", dataset.limits)


def lists_of_many(shards: Path) -> list[tuple[str, str, str]]:
    """The median and the slowest of pages at random places, none of which was opened before."""
    dataset = planted(shards)
    application = Application(ServedTree(dataset), HttpAccess("localhost", None))
    server = TreeServer(ServeAddress("localhost", "127.0.0.1", 0), application)
    threading.Thread(target=server.serve, daemon=True).start()
    port, rows = server.bind_addr[1], []
    wait_until(lambda: b"data-counting" not in ask(port, "/"), 600)
    for name, query in (("stored order", ""), ("random order, 50 shards each", "sort=random&")):
        places = [0, dataset.samples - 50, *(random.randrange(dataset.samples) for _ in range(20))]
        begin = time.process_time()
        took = [1000 * seconds(port, f"/-/samples?{query}from={place}") for place in places]
        busy = 1000 * (time.process_time() - begin) / len(took)
        told = f"{np.median(took):.0f} ms, at most {max(took):.0f}, of which {busy:.0f} ms of a processor"
        rows.append((name, told, at_most(float(np.median(took)), 100, " ms")))
    server.stop()
    return rows


def main() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        own_cache_and_state(root)
        shards = root / "shards"
        make_shards(shards, SHARDS, SAMPLES, AUDIO, sparse=True)
        subprocess.run([TOUCHFS, "index", shards], check=True, stdout=subprocess.DEVNULL)
        openings = {"unknown": first_page(shards, lambda: forget(root)), "known": first_page(shards, lambda: None)}
        took = interleaved(openings, ROUNDS)
        rows = [
            (f"first page, statistics {name}", f"{1000 * value:.0f} ms", at_most(1000 * value, 300, " ms"))
            for name, value in took.items()
        ]
        with serving(shards) as (port, _):
            wait_until(lambda: b"data-counting" not in ask(port, "/"))
            lists = {name: lambda query=query: seconds(port, f"/-/samples?{query}") for name, query in LISTS.items()}
            for name, value in interleaved(lists, ROUNDS).items():
                rows.append((name, f"{1000 * value:.0f} ms", at_most(1000 * value, 100, " ms")))
            sample = lambda: seconds(port, "/-/sample/000000000/s00000-000000")  # noqa: E731
            value = interleaved({"sample": sample}, ROUNDS)["sample"]
            rows.append(("a sample of 10 s", f"{1000 * value:.0f} ms", at_most(1000 * value, 150, " ms")))
            waits = interleaved({"alone": lambda: slowest(port), "beside": lambda: beside_pictures(port)}, ROUNDS)
        report(f"Pages of {SHARDS * SAMPLES:,} samples", rows)
        ratio = waits["beside"] / waits["alone"]
        told = f"{1000 * waits['beside']:.1f} ms, alone {1000 * waits['alone']:.1f} ms"
        report("A GET of 32 KiB, 99th percentile", [("while two pictures are drawn", told, at_most(ratio, 2, "x"))])
        report(f"Memory of the server, {CLIENTS} clients at once", memory_of_pages(shards))
        small = root / "small"
        make_shards(small, 1, 10_000, 32, sparse=True)
        report(f"Lists of {PLANTED * 10_000:,} samples", lists_of_many(small))


if __name__ == "__main__":
    run(main)
