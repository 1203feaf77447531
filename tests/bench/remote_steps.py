"""A shuffled pass over a tar that is not here, through `.touchfs/iterators/` and by `touchfs.open`: with the files of
the next 32 samples fetched ahead, and without. The web server is on loopback, with 20 ms of latency and 50 MB/s a
connection.
"""

import itertools
import json
import os
import random
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

from harness import add, at_least, interleaved, mounted, own_cache_and_state, report, run
from latency_server import latency_server

SAMPLES, SIZE, STEPS, ROUNDS = 256, 1 << 20, 32, 3
# A process of its own: another one would have in memory what it has read.
PYTHON_PASS = """
import sys, time
import touchfs
url, ahead, count, size = sys.argv[1], *map(int, sys.argv[2:])
samples = touchfs.open(url).shuffle(7)
begun = time.perf_counter()
sizes = [len(sample["bin"]) for sample in (samples.prefetch(ahead) if ahead else samples)]
print(time.perf_counter() - begun)
assert sizes == [size] * count
"""


def write_tar(path: Path) -> None:
    chooser = random.Random(3)
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
        for number in range(SAMPLES):
            add(tar, f"{number:05}.bin", chooser.randbytes(SIZE))


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        place, fresh = Path(directory), itertools.count()
        own_cache_and_state(place)
        write_tar(place / "a.tar")

        def one_pass(url: str, *options: str) -> float:
            """Seconds for all samples, with nothing of them on this machine."""
            number = next(fresh)
            os.environ["TOUCHFS_SCRATCH_DIR"] = str(place / f"scratch-{number}")
            with mounted(url, place / f"m{number}", *options) as mount:
                iterator = mount.path / ".touchfs" / "iterators" / f"i{number}"
                iterator.mkdir()
                (iterator / "spec").write_text(json.dumps({"shuffle": 7, "output": "relpath"}))
                begun = time.perf_counter()
                for _ in range(SAMPLES):
                    path = mount.path / (iterator / "next").read_text().strip()
                    assert len(path.read_bytes()) == SIZE
                return time.perf_counter() - begun

        def python_pass(url: str, ahead: int) -> float:
            """The same by `touchfs.open`."""
            os.environ["TOUCHFS_SCRATCH_DIR"] = str(place / f"scratch-{next(fresh)}")
            command = [sys.executable, "-c", PYTHON_PASS, url, *map(str, (ahead, SAMPLES, SIZE))]
            return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

        with latency_server(0, file=str(place / "a.tar")) as server:
            url = f"{server}/a.tar"
            found = interleaved(
                {
                    f"mount --prefetch-steps {STEPS}": lambda: one_pass(url, "--prefetch-steps", str(STEPS)),
                    "mount": lambda: one_pass(url),
                    f"touchfs.open, prefetch({STEPS})": lambda: python_pass(url, STEPS),
                    "touchfs.open": lambda: python_pass(url, 0),
                },
                ROUNDS,
            )
    rows = [(f"{name}, samples/s", f"{SAMPLES / seconds:,.0f}", "") for name, seconds in found.items()]
    mount_ahead, mount, python_ahead, python = found.values()
    ratio = mount / mount_ahead
    rows.append((f"--prefetch-steps {STEPS} / without", f"{ratio:.1f} x", at_least(ratio, 10, " x")))
    rows.append((f"prefetch({STEPS}) / without", f"{python / python_ahead:.1f} x", ""))
    report(f"A shuffled pass over {SAMPLES} samples of {SIZE >> 20} MiB", rows)


if __name__ == "__main__":
    run(main)
