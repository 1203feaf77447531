"""What the handlers of a file cost: lookup, open and release against a coroutine that does nothing, and reads against
one that only does `os.preadv` of a constant descriptor into one buffer.

Handlers are driven as the loop drives them, by sending None to their coroutine, in blocks that take turns. Figures are
medians of the blocks.
"""

import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import SimpleNamespace

from harness import TOUCHFS, at_most, make_shards, own_cache_and_state, report, run
from touchfs_mount.control.facts import NO_FILES, MountFacts
from touchfs_mount.control.known_iterators import KnownIterators
from touchfs_mount.control.recent_errors import RecentErrors
from touchfs_mount.daemon.log_level import LogLevel
from touchfs_mount.daemon.shared import Shared
from touchfs_mount.numbers.slots import OPERATIONS, MountNumbers
from touchfs_mount.requests.one_request import environment
from touchfs_mount.requests.operations import TouchOperations

from touchfs.indexing import open_dataset
from touchfs.store.open_table import OpenTable
from touchfs.store.problem import SharedProblem
from touchfs.tree.tree import Tree

BLOCKS, CALLS = 60, 500


def counting() -> float:
    """Microseconds of what a handler does to count a read: two looks at the clock, `record` and `add_read`."""
    (slot,) = MountNumbers(1).workers
    clock, record, add_read, read = time.monotonic_ns, slot.record, slot.add_read, OPERATIONS.index("read")
    times = []
    for _ in range(BLOCKS):
        begin = time.perf_counter()
        for _ in range(CALLS):
            began = clock()
            add_read(4096)
            record(read, clock() - began)
        times.append((time.perf_counter() - begin) / CALLS * 1e6)
    return statistics.median(times)


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
            numbers=shared.numbers,
            level=LogLevel("info"),
            metrics=None,
        )
        operations = TouchOperations(tree, facts, None)
        operations.started(environment())
        directory = tree.resolve("shards/000000000").inode
        name = b"s00000-000100.wav"
        inode = tree.resolve(f"shards/000000000/{name.decode()}").inode
        context = SimpleNamespace(uid=os.getuid(), gid=os.getgid(), pid=os.getpid())
        descriptor = os.open(root / "shards/000000000/audio.bin", os.O_RDONLY)
        base, buffer = 100 << 20, memoryview(bytearray(1 << 17))
        run_one(operations.open, inode, os.O_RDONLY, context)  # opens the shard

        async def nothing(*arguments: object) -> None: ...

        async def preadv(handle: int, offset: int, length: int) -> memoryview:
            data = buffer[:length]
            os.preadv(descriptor, (data,), base + max(offset - 44, 0))
            return data

        read = "a preadv"
        rows = []
        for what, floor_name, handler, floor, arguments, wanted in (
            ("lookup of 200 names", "nothing", operations.lookup, nothing, (directory, name, context), None),
            ("open", "nothing", operations.open, nothing, (inode, os.O_RDONLY, context), None),
            ("release", "nothing", operations.release, nothing, (inode,), None),
            ("read of 4 KiB", read, operations.read, preadv, (inode, 65536, 4096), 3),
            ("read of 4 KiB across the header", read, operations.read, preadv, (inode, 0, 4096), None),
            ("read of 128 KiB", read, operations.read, preadv, (inode, 131072, 131072), 3),
        ):
            turns = [(block(floor, arguments), block(handler, arguments)) for _ in range(BLOCKS)]
            theirs, ours = (statistics.median(column) for column in zip(*turns, strict=True))
            more = ours - theirs
            measured = f"{ours:.2f} µs, {floor_name} {theirs:.2f} µs, {more:+.2f} µs"
            rows.append((what, measured, "" if wanted is None else at_most(more, wanted, " µs more")))
        os.close(descriptor)
        rows.append(("counting a read, of the above", f"{counting() * 1e3:.0f} ns", ""))
        report("The handlers of a file against what pyfuse3 needs anyway", rows)


def run_one(handler: Callable[..., Coroutine[None, None, object]], *arguments: object) -> object:
    """The answer of a handler that does not wait."""
    try:
        handler(*arguments).send(None)
    except StopIteration as answer:
        return answer.value
    raise RuntimeError("the handler waits")


def block(handler: Callable[..., Coroutine[None, None, object]], arguments: tuple[object, ...]) -> float:
    """Microseconds of one of `CALLS` calls."""
    begin = time.perf_counter()
    for _ in range(CALLS):
        run_one(handler, *arguments)
    return (time.perf_counter() - begin) / CALLS * 1e6


if __name__ == "__main__":
    run(main)
