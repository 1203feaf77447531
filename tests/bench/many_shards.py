"""10,000 indexed shards in S3 (moto's server, a process of its own): time to mount, by a machine that has indexed them
and by one that gets their index from the bucket; what the store is asked; and whether finding a key and restoring an
iteration cost more than on local shards. Lookups and restores take turns, and printed are medians.
"""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
import tarfile
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from harness import TOUCHFS, add, at_most, interleaved, own_cache_and_state, report, run

SHARDS, SAMPLES, ROUNDS = 10_000, 4, 3
URL = "s3://data/many"
_REQUEST = re.compile(rb"([A-Z]+) (/\S+) HTTP")


def make_tars(place: Path) -> None:
    place.mkdir()
    for shard in range(SHARDS):
        with tarfile.open(place / f"{shard:05}.tar", "w", format=tarfile.GNU_FORMAT) as tar:
            for sample in range(SAMPLES):
                add(tar, f"s{shard:05}-{sample}.txt", bytes(100))


@contextmanager
def s3_server(files: Path, log: Path) -> Iterator[None]:
    """Moto's server with these files in data/many/. It writes a line for each request to `log`."""
    code = (
        "import sys, time\nfrom pathlib import Path\nfrom moto.s3.models import s3_backends\n"
        "from moto.server import ThreadedMotoServer\n"
        "bucket = s3_backends['123456789012']['aws']\nbucket.create_bucket('data', 'us-east-1')\n"
        "for path in Path(sys.argv[1]).iterdir():\n"
        "    bucket.put_object('data', f'many/{path.name}', path.read_bytes())\n"
        "server = ThreadedMotoServer(ip_address='127.0.0.1', port=0, verbose=False)\nserver.start()\n"
        "print('%s:%d' % server.get_host_and_port(), flush=True)\ntime.sleep(1 << 20)\n"
    )
    with log.open("wb") as file:
        server = subprocess.Popen([sys.executable, "-c", code, files], stdout=subprocess.PIPE, stderr=file, text=True)
    try:
        assert server.stdout is not None
        os.environ.update(
            AWS_ACCESS_KEY_ID="somebody",
            AWS_SECRET_ACCESS_KEY="something",
            AWS_DEFAULT_REGION="us-east-1",
            AWS_ENDPOINT_URL=f"http://{server.stdout.readline().strip()}",
            AWS_EC2_METADATA_DISABLED="true",
        )
        yield
    finally:
        server.kill()
        server.wait()


def asked(log: Path, since: int) -> str:
    """The requests that are logged after byte `since`."""
    kinds: Counter[str] = Counter()
    for method, path in _REQUEST.findall(log.read_bytes()[since:]):
        what = (
            "listing"
            if b"list-type" in path
            else "shard"
            if b".tar" in path
            else "index"
            if b"index" in path
            else "else"
        )
        kinds[f"{method.decode()} {what}"] += 1
    return ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))


def mount(source: str | Path, where: Path) -> float:
    """Seconds until a mount is there."""
    begin = time.perf_counter()
    subprocess.run([TOUCHFS, "mount", source, where], check=True, stdout=subprocess.DEVNULL)
    took = time.perf_counter() - begin
    assert len(os.listdir(where / "shards")) == SHARDS
    subprocess.run([TOUCHFS, "umount", where], check=True)
    return took


def listing() -> float:
    """Seconds for the listing alone, of which moto's server takes the most."""
    from touchfs.source.data import DATA

    begin = time.perf_counter()
    assert len([entry for entry in DATA.list(URL) if entry.name.endswith(".tar")]) == SHARDS
    return time.perf_counter() - begin


def finding(source: str) -> Callable[[], float]:
    """Seconds to find 1,000 keys in an open dataset."""
    from touchfs.indexing import open_dataset

    dataset = open_dataset(source)
    chooser = random.Random(5)

    def find() -> float:
        keys = [f"s{chooser.randrange(SHARDS):05}-{chooser.randrange(SAMPLES)}" for _ in range(1_000)]
        begin = time.perf_counter()
        assert all(len(dataset.find(key)) == 1 for key in keys)
        return time.perf_counter() - begin

    return find


def restoring(source: str) -> Callable[[], float]:
    """Seconds to restore a shuffled iteration in its middle, and to get the next key."""
    import touchfs

    samples = touchfs.open(source)
    first = iter(shuffled := samples.shuffle(seed=3))
    for _ in range(1_000):
        next(first)
    state, expected = shuffled.state_dict(), next(first).key

    def restore() -> float:
        begin = time.perf_counter()
        again = samples.shuffle(seed=3)
        again.load_state_dict(state)
        assert next(iter(again)).key == expected
        return time.perf_counter() - begin

    return restore


def main() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        root, log = Path(temporary), Path(temporary, "log")
        own_cache_and_state(root)
        os.environ["TOUCHFS_SCRATCH_DIR"] = str(root / "scratch")
        make_tars(root / "local")
        with s3_server(root / "local", log):
            begin = time.perf_counter()
            subprocess.run([TOUCHFS, "index", root / "local"], check=True, stdout=subprocess.DEVNULL)
            indexing_local = time.perf_counter() - begin
            begin, since = time.perf_counter(), log.stat().st_size
            subprocess.run([TOUCHFS, "index", "--in-place", "--jobs", "8", URL], check=True, stdout=subprocess.DEVNULL)
            indexing, index_asked = time.perf_counter() - begin, asked(log, since)
            mounts: dict[str, Callable[[], float]] = {
                "local": lambda: mount(root / "local", root / "m"),
                "S3": lambda: mount(URL, root / "m"),
                "listing": listing,
            }
            times = interleaved(mounts, ROUNDS)
            since = log.stat().st_size
            subprocess.run([TOUCHFS, "info", URL], check=True, stdout=subprocess.DEVNULL)
            warm_asked, since = asked(log, since), log.stat().st_size
            ratios = {}
            for name, timed in (("key", finding), ("restore", restoring)):
                both = interleaved({"local": timed(str(root / "local")), "S3": timed(URL)}, 2 * ROUNDS)
                ratios[name] = both["S3"] / both["local"]
            os.environ.update(XDG_CACHE_HOME=str(root / "cold"), TOUCHFS_SCRATCH_DIR=str(root / "cold-scratch"))
            since = log.stat().st_size
            cold = mount(URL, root / "m")
            cold_asked = asked(log, since)
    report(
        f"{SHARDS:,} shards in S3",
        [
            ("index: local", f"{indexing_local:.1f} s", ""),
            ("index: S3, and write the index there", f"{indexing:.1f} s", index_asked),
            ("mount, indexed: local", f"{times['local']:.2f} s", at_most(times["local"], 3, " s")),
            ("mount, indexed: S3", f"{times['S3']:.2f} s", ""),
            ("of that, the listing", f"{times['listing']:.2f} s", ""),
            ("the rest", f"{times['S3'] - times['listing']:.2f} s", at_most(times["S3"] - times["listing"], 3, " s")),
            ("open, indexed: S3 is asked", "", warm_asked),
            ("mount by a machine without index", f"{cold:.2f} s", cold_asked),
            ("1,000 lookups by key: S3 / local", f"{ratios['key']:.2f}", at_most(ratios["key"], 2)),
            ("restore: S3 / local", f"{ratios['restore']:.2f}", at_most(ratios["restore"], 2)),
        ],
    )


if __name__ == "__main__":
    run(main)
