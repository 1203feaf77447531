"""Workers that run trio: what they do otherwise than those with our own loop. Other tests run so as variants."""

import os
import signal
import threading
from collections.abc import Callable

import pytest
import trio
from mounts import Mount, is_mounted, touchfs
from processes import runs
from touchfs_mount.loop.loop import CELLS, PARKED
from touchfs_mount.loop.pool import PoolLimits
from touchfs_mount.loop.trio_threads import TrioThreads
from touchfs_mount.requests.strikes import IN_DATA_THREAD, ON_LOOP
from waiting import wait_until

from touchfs.errors import SourceTimeoutError

MONDAY = "shards/000000000/talks/monday.wav"


def test_a_mount_is_read_stepped_reloaded_and_killed(speech, tmp_path):
    mounted = Mount(tmp_path / "mnt", speech, "--loop", "trio", "--state-dir", tmp_path / "state")
    assert mounted.info()["loop"] == "trio"
    train = mounted.path / ".touchfs/iterators/train"
    train.mkdir()
    files = {path: path.read_bytes() for path in mounted.files()}
    told = [(train / "next").read_text() for _ in range(3)]
    (worker,) = mounted.workers()
    assert touchfs("reload", mounted.path).returncode == 0
    assert mounted.workers() != [worker], "it has drained, and another one serves"
    told.append((train / "next").read_text())
    (worker,) = mounted.workers()
    os.kill(worker, signal.SIGKILL)
    told.append((train / "next").read_text())
    assert len(set(told)) == 5
    assert {path: path.read_bytes() for path in mounted.files()} == files
    assert mounted.info()["internal_errors"] == 0
    everyone = mounted.processes()
    os.kill(mounted.pid, signal.SIGKILL)
    wait_until(lambda: not is_mounted(mounted.path))  # by its worker, which lives on until nobody uses it
    wait_until(lambda: not any(map(runs, everyone)))


class Threads:
    """The threads of a worker with room for the keys of three calls, and the cells that others look at."""

    def __init__(self, **limits: float) -> None:
        self.running = memoryview(bytearray(8 * (IN_DATA_THREAD + 3))).cast("q")
        self.counters = memoryview(bytearray(8 * CELLS)).cast("q")
        self.go_on = threading.Event()
        self._threads = TrioThreads(PoolLimits(**limits), self.running, self.counters, leaves_hanging=True)
        self.offload, self.offload_control = self._threads.offload, self._threads.offload_control

    async def hang(self, share: str) -> None:
        self.running[ON_LOOP] = 7
        await self.offload(share, self.go_on.wait, 60)

    def in_threads(self) -> list[int]:
        return [key for key in self.running[IN_DATA_THREAD:] if key]


async def until(condition: Callable[[], bool]) -> None:
    with trio.fail_after(60):
        while not condition():
            await trio.sleep(0.01)


def test_calls_of_a_share_wait_for_each_other_and_for_no_others():
    async def main() -> None:
        threads = Threads(share_threads=2)
        async with trio.open_nursery() as nursery:
            for share in "aaabc":
                nursery.start_soon(threads.hang, share)
            # Two of the first share, and one more: the last one has a thread, but no place for its key.
            await until(lambda: threads.counters[PARKED] == 5 and threads.in_threads() == [7, 7, 7])
            assert await threads.offload("d", lambda: 4) == 4
            assert await threads.offload_control("change", lambda: 5) == 5
            threads.go_on.set()
        assert threads.counters[PARKED] == 0
        assert threads.in_threads() == []

    trio.run(main)


def test_a_call_is_given_up_in_time_and_its_error_is_the_callers():
    async def main() -> None:
        threads = Threads(share_threads=1, timeout_seconds=0.1)
        with pytest.raises(SourceTimeoutError, match=r"^no answer within 0\.1 s$"):
            await threads.hang("a")
        threads.go_on.set()
        with pytest.raises(ZeroDivisionError):
            await threads.offload("b", lambda: 1 // 0)

    trio.run(main)
