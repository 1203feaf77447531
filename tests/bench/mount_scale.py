"""A million samples in 100 shards, catalogued: time to mount, own memory, and whether size costs anything.

The same open+read+close is measured on a thousand samples, in turn, each time over 1,000 files chosen anew.
"""

import random
import subprocess
import tempfile
import time
from pathlib import Path

from harness import (
    TOUCHFS,
    at_most,
    interleaved,
    make_shards,
    mounted,
    open_read_close,
    own_cache_and_state,
    report,
    run,
)

AUDIO_SIZE = 4000


def main() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        own_cache_and_state(root)
        make_shards(root / "large", 100, 10_000, AUDIO_SIZE, sparse=True)
        make_shards(root / "small", 1, 1_000, AUDIO_SIZE, sparse=True)
        begin = time.perf_counter()
        subprocess.run([TOUCHFS, "index", root / "large", root / "small"], check=True, stdout=subprocess.DEVNULL)
        indexing = time.perf_counter() - begin
        begin = time.perf_counter()
        subprocess.run([TOUCHFS, "mount", root / "large", root / "m"], check=True, stdout=subprocess.DEVNULL)
        mounting = time.perf_counter() - begin
        subprocess.run([TOUCHFS, "umount", root / "m"], check=True)
        while (root / "m").exists():
            time.sleep(0.01)
        with mounted(root / "large", root / "m1") as large, mounted(root / "small", root / "m2") as small:
            random.seed(1)
            numbers = random.sample(range(1_000_000), 30_000)
            paths = {
                "1,000,000": [
                    f"{large.path}/shards/{n // 10_000:09d}/s{n // 10_000:05d}-{n % 10_000:06d}.wav" for n in numbers
                ],
                "1,000": [f"{small.path}/shards/000000000/s00000-{n:06d}.wav" for n in range(1_000)],
            }

            def contestant(name: str):
                def run() -> float:
                    # New paths each round where there are enough; the kernel forgets names when told to.
                    Path("/proc/sys/vm/drop_caches").write_text("2\n")
                    chosen = random.sample(paths[name], 1_000)
                    return open_read_close(chosen, AUDIO_SIZE + 44, 4_000)

                return run

            medians = interleaved({name: contestant(name) for name in paths}, 9)
            begin = time.perf_counter()
            find = f"find {large.path}/shards | wc -l"
            found = subprocess.run(find, shell=True, capture_output=True, text=True, check=True)
            finding = time.perf_counter() - begin
            assert int(found.stdout) == 3_000_000 + 100 + 1
            memory = large.own_memory()
        report(
            "A million samples in 100 shards, catalogued",
            [
                ("index, samples/s", f"{1_001_000 / indexing:,.0f}", ""),
                ("touchfs mount, until it returns", f"{mounting:.2f} s", at_most(mounting, 1, " s")),
                ("find shards | wc -l, 3 million files", f"{finding:.1f} s", ""),
                *(
                    (f"own memory after find, {name}", f"{size:.0f} MB", at_most(size, 100, " MB"))
                    for name, size in memory.items()
                ),
                (
                    "open+read+close, 1,000,000 samples : 1,000",
                    f"{medians['1,000,000'] / medians['1,000']:.2f}",
                    at_most(medians["1,000,000"] / medians["1,000"], 1.3),
                ),
            ],
        )


if __name__ == "__main__":
    run(main)
