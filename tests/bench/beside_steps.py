"""Reads of small files by one process, alone and while another one makes steps of 50,000 lines of JSON, in turn.

The lines are formatted in a thread of the worker, in Python, so the loop has to get the interpreter back from it.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness import TOUCHFS, at_least, interleaved, make_shards, mounted, own_cache_and_state, report, run

SAMPLES, AUDIO_SIZE, BATCH, SECONDS, ROUNDS = 50_000, 3_200, 50_000, 2.0, 5
# Prints how many of the files, again and again, it opened, read and closed within so many seconds.
READ = """
import os, sys, time
count, until = 0, time.perf_counter() + float(sys.argv[1])
paths = sys.stdin.read().split()
while time.perf_counter() < until:
    descriptor = os.open(paths[count % len(paths)], os.O_RDONLY)
    os.read(descriptor, 1 << 16)
    os.close(descriptor)
    count += 1
print(count)
"""
STEP = "import sys\nwhile True:\n    open(sys.argv[1], 'rb').read()"


@contextmanager
def steps(iterator: Path) -> Iterator[None]:
    """Another process reads `next` without a pause."""
    with subprocess.Popen([sys.executable, "-c", STEP, iterator / "next"]) as process:
        try:
            time.sleep(0.5)
            yield
        finally:
            process.kill()


def main() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        own_cache_and_state(root)
        make_shards(root / "data", 1, SAMPLES, AUDIO_SIZE, sparse=True)
        subprocess.run([TOUCHFS, "index", root / "data"], check=True, stdout=subprocess.DEVNULL)
        with mounted(root / "data", root / "mnt") as mount:
            iterator = mount.path / ".touchfs/iterators/train"
            iterator.mkdir()
            spec = {"shuffle": 7, "repeat": True, "output": "json", "batch": BATCH}
            (iterator / "spec").write_text(json.dumps(spec))
            paths = "\n".join(f"{mount.path}/shards/{0:09d}/s{0:05d}-{number:06d}.wav" for number in range(2000))

            def rate() -> float:
                command = [sys.executable, "-c", READ, str(SECONDS)]
                return int(subprocess.run(command, input=paths, stdout=subprocess.PIPE, text=True).stdout) / SECONDS

            def beside() -> float:
                with steps(iterator):
                    return rate()

            rate()
            rates = interleaved({"alone": rate, "beside steps": beside}, ROUNDS)
        ratio = rates["beside steps"] / rates["alone"]
        rows = [(f"{name}, files/s", f"{value:,.0f}", "") for name, value in rates.items()]
        rows.append(("beside steps / alone", f"{ratio:.2f}x", at_least(ratio, 0.25, "x")))
        report(f"Files of a worker that formats lines of JSON ({os.cpu_count()} cores)", rows)


if __name__ == "__main__":
    run(main)
