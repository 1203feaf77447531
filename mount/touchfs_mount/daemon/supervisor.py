"""The supervisor: starts the zygote, keeps workers alive, and handles signals and systemd notifications.

It runs trio and has the FUSE descriptor open, but never reads a request from it. It polls the descriptor, to see if
requests wait that no worker takes. It writes a single kind of message to it: when a worker has died and a new one is
forked, `FUSE_NOTIFY_RESEND` makes the kernel (6.9 and later) queue all unanswered requests again, so a reader that
waited for the dead worker just continues. This resends *all* requests, even those parked in live workers: every request
may run twice at the same time, and handlers are written for that.

If a kernel rejects the notification, workers clone the descriptor instead (`worker.run_worker`).

How a mount ends:
- It is unmounted from outside: the workers' sessions end, they exit with status 0, and so does the supervisor. After a
  lazy unmount this happens when the last user is gone. By then another mount may be at the path, so the supervisor
  identifies its mount by the device before it unmounts.
- SIGTERM or SIGINT: the supervisor unmounts. If the mount is busy, its name is detached at once (lazy), and programs
  with open files have `GRACE_SECONDS` until the connection is aborted. A second SIGINT aborts at once. Status 0.
- The supervisor is killed: the workers continue, and one of them, or the zygote, detaches the mount.
- The zygote is killed, or workers fail by themselves (not by a signal) `FAILURES_ALLOWED` times within
  `FAILURES_SECONDS`: the supervisor unmounts and exits with status 1, so that a service manager restarts it. Workers
  killed by signals are replaced without limit, but at most `ENDS_PER_SECOND` of them per second.

SIGHUP does not end the mount: it reloads the dataset (`reload`).
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
from touchfs_mount.daemon.reload import Reloader
from touchfs_mount.daemon.worker import DRAINED, SESSION_ENDED, Operations, Shared
from touchfs_mount.daemon.zygote import MESSAGE_SIZE, Renewal, Zygote, run_child_and_exit
from touchfs_mount.loop.loop import ALL_PARKED, BUSY_SINCE, REQUESTS
from touchfs_mount.mounting import mountpoint
from touchfs_mount.mounting.libfuse import MountOptions, mount_error

log = logging.getLogger(__name__)

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

GRACE_SECONDS = 5.0
READY_SECONDS = 60.0
# A third more than the default of 128 for sequential reads; a wider window gains nothing and hurts users of mmap.
READ_AHEAD_KB = 512
FAILURES_ALLOWED, FAILURES_SECONDS = 10, 10.0
ENDS_PER_SECOND = 40


def serve(
    operations: Operations,
    renewal: Renewal,
    shared: Shared,
    options: MountOptions,
    ready: Callable[[], None] = lambda: None,
    mounted: Callable[[], None] = lambda: None,
) -> int:
    """Mount, serve until unmounted, and return the exit status.

    `ready` is called in this process once the root answers; `mounted` is called in the process that mounts, before it
    forks others. The calling process must have no threads, because it forks. Raises MountError if mounting fails.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    # Block signals until trio handles them: a signal in between would leave the mount behind.
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    zygote = os.fork()
    if zygote == 0:
        child = Zygote(operations, renewal, shared, mounted, options)
        run_child_and_exit(lambda: child.run(theirs), [ours.fileno()])
    theirs.close()
    os.close(shared.lifeline)
    try:
        message, descriptors, _, _ = socket.recv_fds(ours, MESSAGE_SIZE, 1)
        reply = json.loads(message) if message else {"error": "the mounting process died: its log says why"}
        if "error" in reply:
            raise mount_error(reply["error"], options.path)
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
        self._ends: deque[float] = deque(maxlen=ENDS_PER_SECOND)
        self._status = 0
        self._problem: MountError | None = None
        self._unmounting = False
        self._stopping_notified = False
        self._notifier = sdnotify.SystemdNotifier()

    async def run(self) -> int:
        self._ended = trio.Event()
        self._result_sender, self._result_receiver = trio.open_memory_channel[str | None](1)
        self._reloader = Reloader(self._shared, self._pids, self._run_command, self._notifier)
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
            signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # the receiver ends now
            nursery.cancel_scope.cancel()
        self._kill_workers()
        await self._send({"end": True})
        if self._problem is not None:
            raise self._problem
        return self._status

    async def _announce(self) -> None:
        """Wait until the root answers a stat and a listing, made by a thread while the workers serve; then call `ready`
        and handle reloads.
        """
        path = self._options.path
        try:
            with trio.fail_after(READY_SECONDS):
                await trio.to_thread.run_sync(_access_root, path, abandon_on_cancel=True)
        except trio.TooSlowError:
            message = f"did not answer within {READY_SECONDS:.0f} s"
            self._problem = MountError(message, path=path, exit_status=mountpoint.EXIT_TIMEOUT)
        except OSError as error:
            message = f"does not answer: {error.strerror}"
            self._problem = MountError(message, path=path, exit_status=mountpoint.EXIT_MOUNT_FAILED)
        if self._problem is not None:
            await self._unmount()
            return
        mountpoint.set_read_ahead(self._device, READ_AHEAD_KB)
        self._ready()
        self._notifier.notify("READY=1")
        await self._reloader.run()

    async def _fork(self, number: int) -> None:
        self._shared.undrain(number)
        await self._send({"fork": number, "clone": self._clone})

    async def _run_command(self, command: str) -> str | None:
        """Send a command to the zygote, and wait for its result: None, or an error message."""
        await self._send({command: True})
        return await self._result_receiver.receive()

    async def _send(self, command: dict[str, object]) -> None:
        with contextlib.suppress(OSError):  # the zygote is gone: `_follow_zygote` notices it
            await self._zygote.send(json.dumps(command).encode())

    async def _follow_zygote(self) -> None:
        while message := await self._receive():
            event = json.loads(message)
            match event:
                case {"started": number, "pid": pid}:
                    self._pids[number] = pid
                    # The order matters: the new worker exists before the requests of the dead one are queued again.
                    if not self._clone:
                        self._resend()
                case {"ended": number, "status": status}:
                    await self._worker_ended(number, status)
                case {"reloaded": error} | {"invalidated": error}:
                    await self._result_sender.send(error)
        if not self._ended.is_set():
            log.error("the zygote is gone: no worker can be started any more")
            self._status = 1
            self._kill_workers()  # readers must not wait for us to unmount
            self._pids.clear()  # the zygote can no longer report that they ended
            self._ended.set()
            await self._unmount()

    async def _receive(self) -> bytes:
        """The next message of the zygote; empty if it is gone. `recv` raises OSError if it left messages unread."""
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
        if len(self._ends) == ENDS_PER_SECOND and self._ends[-1] - self._ends[0] < 1:
            await trio.sleep(1)  # a request that kills every worker it is resent to must not use up the machine
        await self._fork(number)

    def _resend(self) -> bool:
        self._shared.resent[0] += 1
        try:
            resend(self._descriptor)
        except OSError as error:
            return error.errno == errno.ENODEV  # unmounted meanwhile: no request is left to resend
        return True

    async def _follow_signals(self, nursery: trio.Nursery) -> None:
        with trio.open_signal_receiver(*SIGNALS) as signals:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
            async for number in signals:
                if number == signal.SIGHUP:
                    self._reloader.request()
                elif self._unmounting and number == signal.SIGINT:
                    self._abort()
                elif not self._unmounting:
                    nursery.start_soon(self._unmount)

    async def _follow_stuck(self) -> None:
        """Kill a worker that is busy with one request for too long, or idle while waiting requests are not taken."""
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
                    with contextlib.suppress(ProcessLookupError):  # it has ended, and the zygote is about to report it
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
        """End now. The kernel fails unanswered requests once no process has the FUSE descriptor open."""
        self._ended.set()
        self._kill_workers()

    def _kill_workers(self) -> None:
        for pid in self._pids.values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _stopping(self) -> None:
        if not self._stopping_notified:
            self._stopping_notified = True
            self._notifier.notify("STOPPING=1")


def _access_root(path: str) -> None:
    os.stat(path)
    os.listdir(path)
