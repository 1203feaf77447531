"""Reads of a shard in the page cache, alone and while 32 readers wait for shards on a file system that has stopped.

The readers wait in 1, 8 or 32 shards. Blocks with and without them take turns, on one mount.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from harness import (
    TOUCHFS,
    at_least,
    interleaved,
    make_shards,
    mounted,
    open_read_close,
    own_cache_and_state,
    report,
    run,
)

sys.path.append(str(Path(__file__).parent.parent / "mount"))
from slow import readers, slow

SHARDS, READERS, SAMPLES, AUDIO_SIZE, COUNT, ROUNDS = 33, 32, 400, 32_000, 20_000, 5


def main() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        own_cache_and_state(root)
        make_shards(root / "data", SHARDS, SAMPLES, AUDIO_SIZE, sparse=False)
        with slow(root / "data", root / "slow") as files:
            (root / "source").mkdir()
            for shard in range(SHARDS):
                place = files.path if shard else root / "data"
                (root / f"source/{shard:09d}").symlink_to(place / f"{shard:09d}")
            subprocess.run([TOUCHFS, "index", root / "source"], check=True, stdout=subprocess.DEVNULL)
            with mounted(root / "source", root / "mnt") as mount:
                hot = [f"{mount.path}/shards/{0:09d}/s{0:05d}-{i:06d}.wav" for i in range(SAMPLES)]

                def rate() -> float:
                    time.sleep(1)  # by then the readers wait, if there are any
                    return COUNT / open_read_close(hot, AUDIO_SIZE + 44, COUNT, 4)

                def beside(shards: int) -> float:
                    """Each reader reads a file that nobody has read yet."""
                    beside.used += READERS
                    places = [(1 + i % shards, beside.used + i) for i in range(READERS)]
                    files.hang()
                    waiting = [mount.path / f"shards/{n:09d}/s{n:05d}-{i % SAMPLES:06d}.wav" for n, i in places]
                    with readers(files, *waiting):
                        return rate()

                beside.used = 0
                rate()
                rates = interleaved({"nobody": rate} | {str(n): lambda n=n: beside(n) for n in (1, 8, 32)}, ROUNDS)
                alone = rates.pop("nobody")
                rows = [("nobody waits", f"{alone:,.0f} files/s", "")]
                rows += [
                    (f"32 readers wait in {n} shards", f"{value:,.0f} files/s", at_least(value / alone, 0.9, "x"))
                    for n, value in rates.items()
                ]
                report(f"Files/s of a shard that answers, beside those that do not ({os.cpu_count()} cores)", rows)


if __name__ == "__main__":
    run(main)
