"""Pages of `touchfs serve` over a million samples: the first one, with statistics and without, and lists at any place.

Beside that, what a GET of 32 KiB of a file takes at its 99th percentile: alone, and while two pictures are drawn.
"""

from __future__ import annotations

import http.client
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from harness import TOUCHFS, at_most, interleaved, make_shards, own_cache_and_state, report, run

sys.path.append(str(Path(__file__).parent.parent))
from waiting import wait_until

SHARDS, SAMPLES, AUDIO = 10, 100_000, 320_000
ROUNDS, GETS = 5, 400
FILE = "/shards/000000000/s00000-000000.wav"
LISTS = {
    "the first of a list": "from=0",
    "in the middle": "from=500000",
    "at the end": "from=999950",
    "in random order": "sort=random&from=700000",
}


@contextmanager
def serving(shards: Path) -> Iterator[int]:
    """The port of a server that has just started."""
    command = [TOUCHFS, "serve", shards, "--http", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline().strip().rstrip("/").rpartition(":")[2])
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
        with serving(shards) as port:
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
        with serving(shards) as port:
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


if __name__ == "__main__":
    run(main)
