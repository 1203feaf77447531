"""Pictures and reports: what a look costs.

A dataset of a million recordings of 10 s: `touchfs show -o report.html` with ten samples, where statistics are counted
and where they are kept. A sample of 10 s with all of its pictures, in a process that has drawn one before. An hour of
PCM, FLAC and MP3, of which coded ones are drawn for their first minute. Printed are medians.
"""

import os
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from harness import TOUCHFS, at_most, interleaved, make_shards, own_cache_and_state, report, run, seconds_of

from touchfs.dataset.open_shard import OpenShard
from touchfs.explore.html import SIZE
from touchfs.explore.html import report as document
from touchfs.explore.recordings import draw
from touchfs.format import wav
from touchfs.indexing import list_dataset
from touchfs.pages.at_path import page_of_sample
from touchfs.source.data import DATA

SHARDS, SAMPLES, ROUNDS = 20, 50_000, 5
RATE, SECONDS = 16_000, 10


def reports(root: Path) -> None:
    source, page = root / "million", root / "report.html"
    make_shards(source, SHARDS, SAMPLES, 2 * RATE * SECONDS, sparse=True)
    subprocess.run([TOUCHFS, "index", source], check=True, stdout=subprocess.DEVNULL)

    def shown() -> float:
        return seconds_of(lambda: subprocess.run([TOUCHFS, "show", source, "-o", page], check=True))

    def counted() -> float:
        for kept in (root / "cache").rglob("*.statistics.json"):
            kept.unlink()
        return shown()

    medians = interleaved({"counted": counted, "kept": shown}, ROUNDS)
    assert page.stat().st_size < 5_000_000
    report(
        f"A report of {SHARDS * SAMPLES:,} samples",
        [(f"statistics {name}", f"{seconds:.2f} s", at_most(seconds, 10, " s")) for name, seconds in medians.items()],
    )


def samples(root: Path) -> None:
    noise = np.random.default_rng(0).normal(0, 3000, RATE * 3600).astype("<i2").tobytes()
    make_shards(root / "ten", 1, 10, 2 * RATE * SECONDS, sparse=False)
    dataset = list_dataset(str(root / "ten"))
    shard = OpenShard(dataset, dataset.shard(0))
    hour = root / "hour.wav"
    hour.write_bytes(wav.build_header(len(noise), RATE) + noise)
    for name in ("hour.flac", "hour.mp3"):
        subprocess.run(["ffmpeg", "-v", "error", "-i", hour, root / name], check=True)

    def drawn(name: str) -> Callable[[], float]:
        content = DATA.open(os.fspath(root / name))
        content.open()
        return lambda: seconds_of(lambda: draw(name, content, SIZE.columns))

    def page() -> float:
        return seconds_of(lambda: document("sample", [page_of_sample(shard, 3, SIZE)]))

    medians = interleaved(
        {"page": page} | {name: drawn(name) for name in ("hour.wav", "hour.flac", "hour.mp3")}, ROUNDS
    )
    wanted = {"page": 0.15, "hour.wav": 1, "hour.flac": 1, "hour.mp3": 1}
    names = {"page": f"all pictures of {SECONDS} s of PCM, as HTML", "hour.wav": "an hour of PCM"}
    names |= {f"hour.{coding}": f"the first minute of an hour of {coding.upper()}" for coding in ("flac", "mp3")}
    report(
        "Pictures of a sample",
        [
            (names[name], f"{1000 * found:.0f} ms", at_most(found, wanted[name], " s"))
            for name, found in medians.items()
        ],
    )


def main() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        own_cache_and_state(root)
        samples(root)
        reports(root)


if __name__ == "__main__":
    run(main)
