"""The supervisor: starts the zygote, keeps workers alive, and is who the outside talks to.

It runs trio and holds the FUSE descriptor, but never reads a request from it. It polls it, to see whether requests
wait that no worker takes, and it writes one thing to it: when a worker has died and another is forked,
`FUSE_NOTIFY_RESEND` makes the kernel (6.9 and later) queue all unanswered requests again, so a reader that waited for
the dead worker just goes on. *All* of them, also those parked in live workers: every request may run twice at once, and
handlers are written for that.

A kernel that refuses the notification gets workers that clone the descriptor instead (`workers.run_worker`).

How a mount ends:
- unmounted from outside: the workers' sessions end, they exit with status 0, and so do we; detached lazily, that is
  when the last user is gone. By then another mount may be at the path, so what we unmount is known by its device;
- SIGTERM or SIGINT: we unmount; when it is busy the name goes at once (lazy), and whoever still has files open has
  `GRACE_SECONDS` before the connection is aborted; a second SIGINT aborts at once. Status 0;
- the supervisor is killed: the workers go on, one of them (or the zygote) detaches the mount;
- the zygote is killed, or workers fail by themselves (not by a signal) `FAILURES_ALLOWED` times within
  `FAILURES_SECONDS`: we unmount and exit with status 1, for a service manager to start us anew. Workers killed by
  signals are replaced for ever, but not faster than `ENDS_A_SECOND`.

SIGHUP does not end it: the dataset is read anew (`reloading`).
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import select
import signal
import socket
import time
from collections import deque
from collections.abc import Callable

import sdnotify
import trio

from touchfs.errors import MountError
from touchfs_mount.daemon.notifications import resend
from touchfs_mount.daemon.reload import Reloading
from touchfs_mount.daemon.worker import DRAINED, SESSION_ENDED, Operations, Shared
from touchfs_mount.daemon.zygote import MESSAGE_SIZE, Renewal, Zygote, be_the_child
from touchfs_mount.loop.loop import ALL_PARKED, BUSY_SINCE, REQUESTS
from touchfs_mount.mounting import mountpoint
from touchfs_mount.mounting.libfuse import MountOptions, refused

log = logging.getLogger(__name__)

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

GRACE_SECONDS = 5.0
READY_SECONDS = 60.0
# A third more than the default of 128 for sequential reads; a wider window gains nothing and hurts users of mmap.
READ_AHEAD_KB = 512
FAILURES_ALLOWED, FAILURES_SECONDS = 10, 10.0
ENDS_A_SECOND = 40


def serve(
    operations: Operations,
    renewal: Renewal,
    shared: Shared,
    options: MountOptions,
    ready: Callable[[], None] = lambda: None,
    mounted: Callable[[], None] = lambda: None,
) -> int:
    """Mount, serve until unmounted, and return the exit status.

    `ready` is called here once the root answers, `mounted` in the process that mounts and before it forks others. To
    be called in a process without threads, as it forks. Raises MountError when the mount cannot be made.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    # Nobody handles them before trio does, and in between there is a mount to undo.
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    zygote = os.fork()
    if zygote == 0:
        made = Zygote(operations, renewal, shared, mounted, options)
        be_the_child(lambda: made.run(theirs), [ours.fileno()])
    theirs.close()
    os.close(shared.lifeline)
    try:
        message, descriptors, _, _ = socket.recv_fds(ours, MESSAGE_SIZE, 1)
        reply = json.loads(message) if message else {"error": "the mounting process died: its log says why"}
        if "error" in reply:
            raise refused(reply["error"], options.path)
        os.set_inheritable(descriptors[0], False)
        supervisor = _Supervisor(shared, options, ours, descriptors[0], reply["device"], ready)
        try:
            status: int = trio.run(supervisor.run)
        finally:
            os.close(descriptors[0])
        return status
    finally:
        ours.close()
        os.waitpid(zygote, 0)


class _Supervisor:
    def __init__(
        self,
        shared: Shared,
        options: MountOptions,
        zygote: socket.socket,
        descriptor: int,
        device: str,
        ready: Callable[[], None],
    ) -> None:
        self._shared = shared
        self._options = options
        self._descriptor = descriptor
        self._device = device
        self._ready = ready
        self._zygote_socket = zygote
        self._clone = not (options.resend and self._resend())
        self._pids: dict[int, int] = {}
        self._failures: deque[float] = deque(maxlen=FAILURES_ALLOWED)
        self._ends: deque[float] = deque(maxlen=ENDS_A_SECOND)
        self._status = 0
        self._problem: MountError | None = None
        self._unmounting = False
        self._told_stopping = False
        self._notifier = sdnotify.SystemdNotifier()

    async def run(self) -> int:
        self._ended = trio.Event()
        self._answers, self._answer = trio.open_memory_channel[str | None](1)
        self._reloading = Reloading(self._shared, self._pids, self._ask, self._notifier)
        self._zygote = trio.socket.from_stdlib_socket(self._zygote_socket)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._follow_zygote)
            nursery.start_soon(self._follow_signals, nursery)
            nursery.start_soon(self._follow_stuck)
            for number in range(self._options.workers):
                await self._fork(number)
            nursery.start_soon(self._announce)
            await self._ended.wait()
            self._stopping()
            with trio.move_on_after(GRACE_SECONDS):
                while self._pids:
                    await trio.sleep(0.01)
            signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # nobody will follow them
            nursery.cancel_scope.cancel()
        self._kill_workers()
        await self._tell({"end": True})
        if self._problem is not None:
            raise self._problem
        return self._status

    async def _announce(self) -> None:
        """Ready means that the root answers a stat and a listing, asked by a thread while the workers serve."""
        path = self._options.path
        try:
            with trio.fail_after(READY_SECONDS):
                await trio.to_thread.run_sync(_look_at, path, abandon_on_cancel=True)
        except trio.TooSlowError:
            told = f"did not answer within {READY_SECONDS:.0f} s"
            self._problem = MountError(told, path=path, exit_status=mountpoint.EXIT_TIMEOUT)
        except OSError as error:
            told = f"does not answer: {error.strerror}"
            self._problem = MountError(told, path=path, exit_status=mountpoint.EXIT_MOUNT_FAILED)
        if self._problem is not None:
            await self._unmount()
            return
        mountpoint.set_read_ahead(self._device, READ_AHEAD_KB)
        self._ready()
        self._notifier.notify("READY=1")
        await self._reloading.run()

    async def _fork(self, number: int) -> None:
        self._shared.undrain(number)
        await self._tell({"fork": number, "clone": self._clone})

    async def _ask(self, what: str) -> str | None:
        """Have the zygote do something that has an end, and return what went wrong."""
        await self._tell({what: True})
        return await self._answer.receive()

    async def _tell(self, command: dict[str, object]) -> None:
        with contextlib.suppress(OSError):  # the zygote is gone: `_follow_zygote` sees it
            await self._zygote.send(json.dumps(command).encode())

    async def _follow_zygote(self) -> None:
        while message := await self._hear():
            news = json.loads(message)
            match news:
                case {"started": number, "pid": pid}:
                    self._pids[number] = pid
                    # In order: the new worker is there before the requests of the dead one are queued again.
                    if not self._clone:
                        self._resend()
                case {"ended": number, "status": status}:
                    await self._worker_ended(number, status)
                case {"reloaded": error} | {"invalidated": error}:
                    await self._answers.send(error)
        if not self._ended.is_set():
            log.error("the zygote is gone: no worker can be started any more")
            self._status = 1
            self._kill_workers()  # readers must not wait for us to unmount
            self._pids.clear()  # nobody will tell us of their end
            self._ended.set()
            await self._unmount()

    async def _hear(self) -> bytes:
        """What the zygote says next; nothing when it is gone, which is an error if it left something unread."""
        try:
            return bytes(await self._zygote.recv(MESSAGE_SIZE))
        except OSError:
            return b""

    async def _worker_ended(self, number: int, status: int) -> None:
        pid = self._pids.pop(number)
        self._shared.counters[number][BUSY_SINCE] = 0
        self._shared.strikes.ended(number, badly=status not in (SESSION_ENDED, DRAINED))
        if status == SESSION_ENDED:
            self._ended.set()
        if self._ended.is_set():
            return
        if status == DRAINED:
            await self._fork(number)
            return
        if status > 0:
            self._failures.append(time.monotonic())
            if len(self._failures) == FAILURES_ALLOWED and self._failures[-1] - self._failures[0] < FAILURES_SECONDS:
                log.critical("workers keep failing: unmounting")
                self._status = 1
                await self._unmount()
                return
        log.warning("worker %d (pid %d) ended with status %d: starting another", number, pid, status)
        self._ends.append(time.monotonic())
        if len(self._ends) == ENDS_A_SECOND and self._ends[-1] - self._ends[0] < 1:
            await trio.sleep(1)  # a request that kills each worker it is sent to again must not take the machine
        await self._fork(number)

    def _resend(self) -> bool:
        self._shared.resent[0] += 1
        try:
            resend(self._descriptor)
        except OSError as error:
            return error.errno == errno.ENODEV  # unmounted meanwhile: nothing is left to send again
        return True

    async def _follow_signals(self, nursery: trio.Nursery) -> None:
        with trio.open_signal_receiver(*SIGNALS) as signals:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
            async for number in signals:
                if number == signal.SIGHUP:
                    self._reloading.want()
                elif self._unmounting and number == signal.SIGINT:
                    self._abort()
                elif not self._unmounting:
                    nursery.start_soon(self._unmount)

    async def _follow_stuck(self) -> None:
        """Kill a worker that is busy with one thing for too long, or idle while requests wait and nobody takes any."""
        limit = int(self._options.stuck_seconds * 1e9)
        requests = select.poll()
        requests.register(self._descriptor, select.POLLIN)
        taken, untaken_since = -1, 0
        while True:
            await trio.sleep(min(1.0, self._options.stuck_seconds / 2))
            self._notifier.notify("WATCHDOG=1")
            now = time.monotonic_ns()
            busy = [counters[BUSY_SINCE] for counters in self._shared.counters]
            total = sum(counters[REQUESTS] for counters in self._shared.counters)
            if total != taken or ALL_PARKED in busy or not requests.poll(0):
                taken, untaken_since = total, now
            for number, pid in self._pids.items():
                since = busy[number] or untaken_since
                if since > 0 and now - since > limit:
                    log.error("worker %d (pid %d) has been stuck for %.1f s: killing it", number, pid, limit / 1e9)
                    with contextlib.suppress(ProcessLookupError):  # ended, and we are about to hear of it
                        os.kill(pid, signal.SIGKILL)

    async def _unmount(self) -> None:
        self._unmounting = True
        self._stopping()
        await trio.to_thread.run_sync(mountpoint.detach, self._options.path, self._device)
        with trio.move_on_after(GRACE_SECONDS) as grace:
            await self._ended.wait()
        if grace.cancelled_caught:
            log.warning("%s is still in use: aborting", self._options.path)
            self._abort()

    def _abort(self) -> None:
        """End now. The kernel fails what is unanswered when nobody has the FUSE descriptor any more."""
        self._ended.set()
        self._kill_workers()

    def _kill_workers(self) -> None:
        for pid in self._pids.values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _stopping(self) -> None:
        if not self._told_stopping:
            self._told_stopping = True
            self._notifier.notify("STOPPING=1")


def _look_at(path: str) -> None:
    os.stat(path)
    os.listdir(path)
