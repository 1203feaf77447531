"""What the read handler costs beyond the pread it does: against one that only does `os.pread` of a constant descriptor.

Handlers are driven as the loop drives them, by sending None to their coroutine, in blocks that take turns.
"""

import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from harness import TOUCHFS, at_most, make_shards, own_cache_and_state, report, run
from touchfs_mount.control.facts import NO_FILES, MountFacts
from touchfs_mount.control.known_iterators import KnownIterators
from touchfs_mount.control.recent_errors import RecentErrors
from touchfs_mount.daemon.worker import Shared
from touchfs_mount.requests.one_request import environment
from touchfs_mount.requests.operations import TouchOperations

from touchfs.indexing import open_dataset
from touchfs.store.open_table import OpenTable
from touchfs.store.problem import SharedProblem
from touchfs.tree.tree import Tree

BLOCKS, CALLS = 60, 500


def main() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        own_cache_and_state(root)
        make_shards(root / "shards", 1, 200, 1 << 20, sparse=False)
        subprocess.run([TOUCHFS, "index", root / "shards"], check=True, stdout=subprocess.DEVNULL)
        dataset = open_dataset(str(root / "shards"))
        tree = Tree(dataset, [1])
        shared = Shared(1)
        facts = MountFacts(
            path="",
            pid=os.getpid(),
            since=0,
            files=NO_FILES,
            loop="own",
            counters=shared.counters,
            reloads=shared.reloads,
            resent=shared.resent,
            opens=OpenTable(alone=True),
            errors=RecentErrors(),
            known=KnownIterators(),
            problem=SharedProblem(),
        )
        operations = TouchOperations(tree, facts, None)
        operations.started(environment())
        entry = tree.resolve("shards/000000000/s00000-000100.wav")
        descriptor = os.open(root / "shards/000000000/audio.bin", os.O_RDONLY)
        base = 100 << 20

        async def constant(handle: int, offset: int, length: int) -> bytes:
            return os.pread(descriptor, length, base + offset - 44)

        def block(handler, offset: int, length: int) -> float:
            inode = entry.inode
            begin = time.perf_counter()
            for _ in range(CALLS):
                try:
                    handler(inode, offset, length).send(None)
                except StopIteration as answer:
                    assert len(answer.value) == length
            return (time.perf_counter() - begin) / CALLS * 1e6

        rows = []
        for what, offset, length in (
            ("4 KiB", 65536, 4096),
            ("4 KiB across the header", 0, 4096),
            ("128 KiB", 131072, 131072),
        ):
            times: dict[str, list[float]] = {"constant": [], "ours": []}
            for _ in range(BLOCKS):
                times["constant"].append(block(constant, max(offset, 44), length))
                times["ours"].append(block(operations.read, offset, length))
            theirs, ours = statistics.median(times["constant"]), statistics.median(times["ours"])
            wanted = "" if offset == 0 else at_most(ours - theirs, 3, " µs more")
            told = f"{ours:.2f} µs, pread alone {theirs:.2f} µs, {ours - theirs:+.2f} µs"
            rows.append((f"read of {what}", told, wanted))
        os.close(descriptor)
        report("The read handler against a pread of a constant descriptor", rows)


if __name__ == "__main__":
    run(main)
