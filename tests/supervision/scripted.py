"""The other sides of a supervisor, by script: a zygote at the end of its socket, the kernel, and systemd.

The supervisor itself is the real one, on trio's virtual clock.
"""

import json
import os
import signal
import socket
from collections.abc import Callable
from contextlib import suppress

import trio
from touchfs_mount.daemon.shared import Shared
from touchfs_mount.daemon.supervisor import Supervisor
from touchfs_mount.mountpoints.options import MountOptions
from touchfs_mount.supervision.root import MountedRoot

from touchfs.posix.service_manager import ServiceManager

KILLED = -signal.SIGKILL


class ScriptedZygote:
    """Answers the supervisor's commands. `on_fork(number)` is false if a fork is not to be answered."""

    def __init__(self) -> None:
        self.theirs, self._ours = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.commands: list[dict] = []
        self.forked: list[tuple[float, int]] = []
        self.killed: list[tuple[float, int]] = []
        self.keeps_killed = False  # as a call in the kernel that does not end
        self.workers: dict[int, int] = {}
        self.on_fork: Callable[[int], bool] = lambda number: True
        self.results: dict[str, str | None] = {}
        self.reload_seconds = 0.0
        self._pid = 100_000

    async def run(self) -> None:
        ours = trio.socket.from_stdlib_socket(self._ours)
        with suppress(OSError):
            while message := await ours.recv(65536):
                command = json.loads(message)
                self.commands.append(command)
                if "fork" in command and self.on_fork(command["fork"]):
                    self._start(command["fork"])
                if "reload" in command:
                    await trio.sleep(self.reload_seconds)
                    self._send({"reloaded": self.results.get("reload")})
                if "invalidate" in command:
                    self._send({"invalidated": self.results.get("invalidate")})

    def _start(self, number: int) -> None:
        self._pid += 1
        self.workers[number] = self._pid
        self.forked.append((trio.current_time(), number))
        self._send({"started": number, "pid": self._pid})

    def end_worker(self, number: int, status: int) -> None:
        del self.workers[number]
        self._send({"ended": number, "status": status})

    def end_session(self) -> None:
        for number in list(self.workers):
            self.end_worker(number, 0)

    def send_signal(self, pid: int, number: int) -> None:
        assert number == signal.SIGKILL
        found = [worker for worker, its in self.workers.items() if its == pid]
        if not found:
            raise ProcessLookupError
        self.killed.append((trio.current_time(), found[0]))
        if not self.keeps_killed:
            self.end_worker(found[0], KILLED)

    def die(self) -> None:
        self._ours.shutdown(socket.SHUT_RDWR)

    def _send(self, event: dict[str, object]) -> None:
        with suppress(OSError):
            self._ours.send(json.dumps(event).encode())


class ScriptedRoot(MountedRoot):
    """A mount whose root answers after `seconds`, and which ends when it is detached unless it `is_busy`."""

    def __init__(self, zygote: ScriptedZygote) -> None:
        super().__init__("/mnt/scripted", "0:99")
        self.seconds = 0.0
        self.is_busy = False
        self.detached: list[float] = []
        self._zygote = zygote

    async def answer(self) -> None:
        await trio.sleep(self.seconds)

    async def answer_statfs(self) -> None:
        await trio.sleep(self.seconds)

    def widen_read_ahead(self) -> None: ...

    async def detach(self) -> None:
        self.detached.append(trio.current_time())
        if not self.is_busy:
            self._zygote.end_session()


class Scene:
    """A supervisor and its other sides. `status` is its exit status, once it has ended."""

    def __init__(self, notify_path: str, *, workers: int = 1, watchdog: float | None = None, stuck: float = 10) -> None:
        self.zygote = ScriptedZygote()
        self.root = ScriptedRoot(self.zygote)
        self.shared = Shared(workers)
        self.kernel, self.fuse = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.kernel.setblocking(False)
        self.systemd = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.systemd.bind(notify_path)
        self.systemd.setblocking(False)
        self.status: int | None = None
        self.ended = trio.Event()
        self._options = MountOptions(self.root.path, "shards", workers=workers, stuck_seconds=stuck)
        self._manager = ServiceManager(notify_path, watchdog)

    async def run(self) -> None:
        """Supervise until the mount has ended."""
        supervisor = Supervisor(
            self.shared,
            self._options,
            self.root,
            self.zygote.theirs,
            [self.fuse.fileno()],
            None,
            self._manager,
            lambda: "3 shards",
            now=lambda: int(trio.current_time() * 1e9),
            send_signal=self.zygote.send_signal,
        )
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.zygote.run)
            self.status = await supervisor.run()
            nursery.cancel_scope.cancel()
        self.ended.set()

    async def begin(self, nursery: trio.Nursery) -> None:
        """Start the supervisor, and wait until its workers run."""
        nursery.start_soon(self.run)
        await trio.sleep(0.5)

    def messages(self) -> list[str]:
        """What systemd has got since the last call."""
        return _received(self.systemd, lambda data: data.decode())

    def resent(self) -> int:
        """How often the kernel was asked to resend requests since the last call."""
        return len(_received(self.kernel, bytes))

    def close(self) -> None:
        for each in (self.kernel, self.fuse, self.systemd, self.zygote.theirs, self.zygote._ours):
            each.close()
        close_shared(self.shared)


def close_shared(shared: Shared) -> None:
    """Close what the processes of a mount close by exiting."""
    shared.door.close()
    shared.alone_end.close()
    os.close(shared.lifeline)
    os.close(shared.lifeline_write)


def _received(socket_: socket.socket, convert: Callable) -> list:
    found = []
    with suppress(BlockingIOError):
        while True:
            found.append(convert(socket_.recv(4096)))
    return found
