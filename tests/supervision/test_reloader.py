"""The real `Reloader` on a virtual clock: its zygote and its workers are scripted."""

import pytest
import trio
from scripted import close_shared
from touchfs_mount.daemon.reload import DRAIN_SECONDS, Reloader
from touchfs_mount.daemon.shared import Shared
from touchfs_mount.supervision.running import RunningWorkers

from touchfs.posix.processes import is_readable
from touchfs.posix.service_manager import ServiceManager

pytestmark = pytest.mark.trio


class Workers:
    """Two workers which drain in `seconds`, or never; a killed one has a successor at once, as a drained one."""

    def __init__(self, seconds: float = 0.1) -> None:
        self.shared = Shared(2)
        self.running = RunningWorkers(self.send_signal)
        self.running.pids |= {0: 10, 1: 11}
        self.seconds = seconds
        self.killed: list[int] = []
        self.commands: list[str] = []
        self.errors: dict[str, str] = {}
        self.reload_seconds = 1.0
        self.reloader = Reloader(self.shared, self.running, self.run_command, ServiceManager())

    def send_signal(self, pid: int, number: int) -> None:
        self.killed.append(pid)
        self._replace(next(number for number, its in self.running.pids.items() if its == pid))

    def _replace(self, number: int) -> None:
        self.shared.undrain(number)
        self.running.pids[number] += 10

    async def run_command(self, command: str) -> str | None:
        self.commands.append(command)
        await trio.sleep(self.reload_seconds)
        return self.errors.get(command)

    async def drain(self, number: int) -> None:
        while True:
            await trio.sleep(self.seconds)
            if is_readable(self.shared.worker(number).drain):
                self._replace(number)

    def start(self, nursery: trio.Nursery) -> None:
        for number in (0, 1):
            nursery.start_soon(self.drain, number)
        nursery.start_soon(self.reloader.run)

    def end(self, nursery: trio.Nursery) -> None:
        nursery.cancel_scope.cancel()
        close_shared(self.shared)

    @property
    def outcome(self) -> tuple[object, ...]:
        info = self.shared.reloads.info()
        return info["generation"], info["reloads_begun"], info["reloads_ended"], info["reload_error"]


async def test_a_reload_replaces_all_workers(nursery, autojump_clock):
    workers = Workers()
    workers.start(nursery)
    workers.reloader.request()
    await trio.sleep(0.5)
    assert workers.outcome == (1, 1, 0, None)
    await trio.sleep(5)
    assert workers.outcome == (2, 1, 1, None)
    assert workers.running.pids == {0: 20, 1: 21}
    assert workers.commands == ["reload", "invalidate"]
    assert workers.killed == []
    workers.end(nursery)


async def test_requests_during_a_reload_are_one_more(nursery, autojump_clock):
    workers = Workers()
    workers.start(nursery)
    workers.reloader.request()
    await trio.sleep(0.5)
    for _ in range(3):
        workers.reloader.request()
    await trio.sleep(20)
    assert workers.outcome == (3, 2, 2, None)
    workers.end(nursery)


async def test_a_reload_that_fails_leaves_the_workers(nursery, autojump_clock):
    workers = Workers()
    workers.errors["reload"] = "no such dataset"
    workers.start(nursery)
    workers.reloader.request()
    await trio.sleep(5)
    assert workers.outcome == (1, 1, 1, "not reloaded: no such dataset")
    assert workers.running.pids == {0: 10, 1: 11}
    assert workers.commands == ["reload"]
    workers.errors.clear()
    workers.reloader.request()
    await trio.sleep(5)
    assert workers.outcome == (2, 2, 2, None)
    workers.end(nursery)


async def test_old_entries_in_the_kernel_are_an_error(nursery, autojump_clock):
    workers = Workers()
    workers.errors["invalidate"] = "it died"
    workers.start(nursery)
    workers.reloader.request()
    await trio.sleep(5)
    reason = "reloaded, but the kernel still has old entries in its cache: it died"
    assert workers.outcome == (2, 1, 1, reason)
    workers.end(nursery)


async def test_a_worker_that_does_not_drain_is_killed(nursery, autojump_clock):
    workers = Workers(seconds=1e6)
    workers.start(nursery)
    workers.reloader.request()
    await trio.sleep(workers.reload_seconds + DRAIN_SECONDS - 0.1)
    assert workers.killed == []
    await trio.sleep(3)
    assert workers.killed == [10, 11]
    assert workers.outcome == (2, 1, 1, None)
    workers.end(nursery)


async def test_a_drain_cannot_be_missed():
    shared = Workers().shared
    shared.drain(0)
    shared.drain(0)
    assert is_readable(shared.worker(0).drain)
    shared.undrain(0)
    assert not is_readable(shared.worker(0).drain)
    close_shared(shared)
