"""A first look into data that were never indexed.

10,000 local tars: `touchfs ls` and `cat` in one of them, against the same tar alone, beside what a listing of all takes
(`touchfs ls DATASET`); and a mount of them until its root answers, against one that is indexed. Tars on a web server 20
ms away: the first `ls` of one of 1,000 samples of 30 KB. A tar of 400,000 members, mounted until one is read, against
ratarmount. A reader of a shard that is indexed, while all others are, against one beside two loops of the same low
priority that do nothing. What is compared takes turns; printed are medians.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from daemons import RATARMOUNT
from harness import TOUCHFS, add, at_least, at_most, interleaved, own_cache_and_state, report, run
from latency_server import latency_server

SHARDS, SAMPLES, ROUNDS = 10_000, 50, 5
MEMBERS, MEMBER = 400_000, 100
REST_SHARDS, REST_MEMBERS, READ_SECONDS = 60, 20_000, 3.0
FAR_SHARDS, FAR_SAMPLES, FAR_SIZE, LATENCY = 100, 1_000, 30_000, 0.02


def write_tar(path: Path, samples: int, size: int) -> None:
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as tar:
        for number in range(samples):
            add(tar, f"{path.stem}-{number:05}.txt", bytes(size))


def unindexed(root: Path, act: Callable[[], object]) -> Callable[[], float]:
    """Seconds of an act, each time without an index."""

    def acted() -> float:
        shutil.rmtree(root / "cache", ignore_errors=True)
        begin = time.perf_counter()
        act()
        return time.perf_counter() - begin

    return acted


def touchfs(*arguments: str | Path) -> Callable[[], object]:
    return lambda: subprocess.run([TOUCHFS, *arguments], check=True, stdout=subprocess.DEVNULL)


def mounting(source: Path | str, where: Path, *options: str) -> Callable[[], float]:
    """Seconds until the root answers. The mount ends before the next one."""

    def mount() -> float:
        begin = time.perf_counter()
        touchfs("mount", source, where, *options)()
        os.listdir(where)
        took = time.perf_counter() - begin
        touchfs("umount", where)()
        return took

    return mount


def local(root: Path) -> None:
    shards = root / "shards"
    shards.mkdir()
    for number in range(SHARDS):
        write_tar(shards / f"t-{number:05}.tar", SAMPLES, 100)
    alone = root / "alone"
    alone.mkdir()
    shutil.copy(shards / "t-00007.tar", alone)
    two = root / "two"
    two.mkdir()
    for name in ("t-00007.tar", "t-00008.tar"):
        shutil.copy(shards / name, two)
    of_all, of_one = f"{shards}:shards/t-00007", f"{alone / 't-00007.tar'}:shards/t-00007"
    rows = []
    for command, file in (("ls", ""), ("cat", "/t-00007-00003.txt")):
        took = interleaved(
            {
                "all": unindexed(root, touchfs(command, of_all + file)),
                "one": unindexed(root, touchfs(command, of_one + file)),
                "listing": unindexed(root, touchfs("ls", shards)),
                "start": unindexed(root, touchfs("ls", two)),
            },
            ROUNDS,
        )
        ratio = (took["all"] - took["listing"] + took["start"]) / took["one"]
        told = f"{took['all']:.2f} s: {ratio:.2f}x the tar alone ({took['one']:.2f} s), beside the listing"
        rows.append((f"`touchfs {command}` in one of them", told, at_most(ratio, 1.3, "x")))
    rows.append(("`touchfs ls` of all, which indexes none", f"{took['listing']:.2f} s", ""))
    new, indexed = mounting(shards, root / "new", "--indexing", "touch"), mounting(shards, root / "indexed")
    touchfs("index", shards)()
    kept = root / "kept"
    shutil.copytree(root / "cache", kept)

    def first() -> float:
        shutil.rmtree(root / "cache", ignore_errors=True)
        return new()

    def again() -> float:
        shutil.rmtree(root / "cache", ignore_errors=True)
        shutil.copytree(kept, root / "cache")
        return indexed()

    took = interleaved({"first": first, "again": again}, ROUNDS)
    ratio = took["first"] / took["again"]
    rows.append(("mount, until its root answers", f"{took['first']:.2f} s", at_most(took["first"], 2, " s")))
    rows.append(("", f"{ratio:.2f}x one that is indexed", at_most(ratio, 1.2, "x")))
    report(f"{SHARDS:,} tars of {SAMPLES} members, of which none is indexed", rows)


def far(root: Path) -> None:
    write_tar(root / "far.tar", FAR_SAMPLES, FAR_SIZE)
    with latency_server(1, LATENCY, file=str(root / "far.tar")) as server:
        url = f"{server}/t-{{000..{FAR_SHARDS - 1:03}}}.tar"

        def look() -> float:
            shutil.rmtree(root / "cache", ignore_errors=True)
            os.environ["TOUCHFS_SCRATCH_DIR"] = tempfile.mkdtemp(dir=root)
            touchfs("mount", url, root / "far")()
            begin = time.perf_counter()
            assert len(os.listdir(root / "far" / "shards" / "t-007")) == FAR_SAMPLES
            took = time.perf_counter() - begin
            touchfs("umount", root / "far")()
            return took

        took = interleaved({"look": look}, ROUNDS)["look"]
    report(
        f"One of {FAR_SHARDS} tars of {FAR_SAMPLES:,} samples of {FAR_SIZE // 1000} KB, {LATENCY * 1000:.0f} ms away",
        [("first `ls` of a shard in a mount", f"{took:.2f} s", at_most(took, 2, " s"))],
    )


def large(root: Path) -> None:
    tar, where = root / "large.tar", root / "large"
    write_tar(tar, MEMBERS, MEMBER)
    where.mkdir()
    name = f"large-{MEMBERS // 2:05}.txt"

    def ours() -> None:
        touchfs("mount", tar, where)()
        assert (where / "shards" / "large" / name).stat().st_size == MEMBER

    def theirs() -> None:
        subprocess.run([RATARMOUNT, "--recreate-index", tar, where], check=True, stdout=subprocess.DEVNULL)
        assert (where / name).stat().st_size == MEMBER

    def until_unmounted(look: Callable[[], None]) -> Callable[[], float]:
        def looked() -> float:
            took = unindexed(root, look)()
            subprocess.run(["fusermount3", "-u", where], check=True)
            return took

        return looked

    took = interleaved({"ours": until_unmounted(ours), "theirs": until_unmounted(theirs)}, ROUNDS)
    ratio = took["theirs"] / took["ours"]
    told = f"{took['ours']:.2f} s: {ratio:.2f}x as fast as ratarmount ({took['theirs']:.2f} s)"
    report(
        f"A tar of {MEMBERS:,} members of which there is no index",
        [("until one is read", told, at_least(ratio, 1.5, "x"))],
    )


def beside_the_background(root: Path) -> None:
    data, where = root / "beside", root / "beside-mounted"
    data.mkdir()
    write_tar(data / "read.tar", MEMBERS, MEMBER)
    for number in range(REST_SHARDS):
        write_tar(data / f"rest-{number:02}.tar", REST_MEMBERS, MEMBER)
    touchfs("ls", f"{data}:shards/read")()
    shutil.copytree(root / "cache", root / "one-indexed")
    touchfs("index", data)()
    shutil.copytree(root / "cache", root / "all-indexed")

    def mounted(kept: str, *options: str) -> None:
        shutil.rmtree(root / "cache")
        shutil.copytree(root / kept, root / "cache")
        touchfs("mount", data, where, *options)()

    def seconds_a_file() -> float:
        begin = now = time.perf_counter()
        number = 0
        while now - begin < READ_SECONDS:
            assert len((where / f"shards/read/read-{number:05}.txt").read_bytes()) == MEMBER
            number, now = number + 1, time.perf_counter()
        return (now - begin) / number

    def background() -> float:
        mounted("one-indexed", "--indexing", "background")
        took = seconds_a_file()
        assert json.loads((where / ".touchfs" / "info").read_text())["samples"] is None, (
            "all were indexed before the end"
        )
        touchfs("umount", where)()
        return took

    def loops() -> float:
        mounted("all-indexed")
        idle = [subprocess.Popen(["nice", "-n", "10", sys.executable, "-c", "while True: pass"]) for _ in range(2)]
        try:
            return seconds_a_file()
        finally:
            for each in idle:
                each.kill()
                each.wait()
            touchfs("umount", where)()

    took = interleaved({"background": background, "loops": loops}, ROUNDS)
    ratio = took["loops"] / took["background"]
    told = f"{1 / took['background']:,.0f} files/s: {ratio:.2f}x beside two loops ({1 / took['loops']:,.0f} files/s)"
    report(
        "A reader, while other shards are indexed", [("of a shard that is indexed", told, at_least(ratio, 0.9, "x"))]
    )


def main() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        own_cache_and_state(root)
        local(root)
        far(root)
        large(root)
        beside_the_background(root)


if __name__ == "__main__":
    run(main)
