"""The supervisor: starts the zygote, keeps workers alive, and handles signals and notifies the service manager.

It runs trio and has the FUSE descriptors open, but never reads a request from them. It polls them, to see if requests
wait that no process takes (`supervision.stuck`). It writes a single kind of message to them: when a process has died
and a new one is forked, `FUSE_NOTIFY_RESEND` makes the kernel (6.9 and later) queue all unanswered requests again, so a
reader that waited for the dead one just continues. This resends *all* requests, even those that live workers run: every
request may run twice at the same time, and the first answer counts (`requests.connection`).

If a kernel rejects the notification, workers clone the descriptor instead (`worker.run_worker`).

Two signals do not end the mount: SIGUSR1 opens the log again, and SIGHUP also reloads the dataset (`reload`).
`supervision.ending` says what does end it.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import signal
import socket
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import trio

from touchfs.core.errors import MountError
from touchfs.posix.processes import is_readable
from touchfs.posix.service_manager import ServiceManager
from touchfs_mount.daemon.children import run_child_and_exit
from touchfs_mount.daemon.reload import Reloader
from touchfs_mount.daemon.renewal import Renewal
from touchfs_mount.daemon.serving import Serving
from touchfs_mount.daemon.shared import Shared
from touchfs_mount.daemon.worker import DRAINED, SESSION_ENDED
from touchfs_mount.daemon.zygote import Zygote
from touchfs_mount.logs import logs
from touchfs_mount.messages import notifications
from touchfs_mount.mountpoints.control_place import ControlPlace
from touchfs_mount.mountpoints.mountpoint import EXIT_MOUNT_FAILED
from touchfs_mount.mountpoints.options import MountOptions
from touchfs_mount.numbers.cells import BUSY_SINCE, PARKED
from touchfs_mount.numbers.slots import SupervisorCount
from touchfs_mount.supervision.ending import Ending
from touchfs_mount.supervision.restart_limits import FAILURES_SECONDS, LACKED_ROOM, PAUSE_SECONDS, RestartLimits
from touchfs_mount.supervision.root import MountedRoot
from touchfs_mount.supervision.running import RunningWorkers
from touchfs_mount.supervision.short_memory import ShortMemory
from touchfs_mount.supervision.stuck import STOPPED, STOPPED_SECONDS, StuckWatch
from touchfs_mount.supervision.watchdog import feed_watchdog
from touchfs_mount.supervision.zygote_link import MESSAGE_SIZE, WorkerEnded, WorkerStarted, WorkerUnforked, ZygoteLink

if TYPE_CHECKING:
    from touchfs_mount.numbers.metrics import MetricsServer

log = logging.getLogger(__name__)

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)

READY_SECONDS = 60.0
# A zygote forks within milliseconds, but a reload of millions of samples may delay it.
FORK_SECONDS = 60.0
ZYGOTE_END_SECONDS = 5.0


def serve(
    serving: Serving,
    renewal: Renewal,
    shared: Shared,
    options: MountOptions,
    place: ControlPlace | None,
    ready: Callable[[], str],
    mounted: Callable[[], None] = lambda: None,
    metrics: MetricsServer | None = None,
) -> int:
    """Mount, serve until unmounted, and return the exit status.

    `ready` is called in this process once the root answers, and returns the status to show; `mounted` is called in the
    process that mounts, before it forks others. The calling process must have no threads, because it forks. Raises
    MountError if mounting fails.
    """
    manager = ServiceManager.take()
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    # Block signals until trio handles them: a signal in between would leave the mount behind.
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    zygote = os.fork()
    if zygote == 0:
        child = Zygote(serving, renewal, shared, mounted, options, place)
        closed = [ours.fileno(), *(() if metrics is None else metrics.descriptors)]
        run_child_and_exit(lambda: child.run(theirs), closed)
    theirs.close()
    os.close(shared.lifeline)
    for passed in (options.descriptor, options.control_descriptor):
        if passed is not None:
            os.close(passed)  # ours comes from the zygote
    try:
        message, descriptors, _, _ = socket.recv_fds(ours, MESSAGE_SIZE, 2)
        reply = json.loads(message) if message else {"error": f"the mounting process died: {logs.last_words()}"}
        if "error" in reply:
            raise MountError(reply["error"], exit_status=int(reply.get("status", EXIT_MOUNT_FAILED)))
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
        root = MountedRoot(options.path, reply["device"])
        try:
            return trio.run(Supervisor(shared, options, root, ours, descriptors, place, manager, ready, metrics).run)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
    finally:
        ours.close()
        _wait_for_zygote(zygote)


class Supervisor:
    """The supervisor of a mount: `zygote` is the socket to its zygote. `descriptors` are the FUSE descriptors of the
    mount and, if there is one, of its control mount, which is at `place`.

    `ready` is called once the root answers, and returns the status to show. `metrics` serves the numbers. `now` and
    `send_signal` are those of the system (`StuckWatch`, `RunningWorkers`).
    """

    def __init__(
        self,
        shared: Shared,
        options: MountOptions,
        root: MountedRoot,
        zygote: socket.socket,
        descriptors: Sequence[int],
        place: ControlPlace | None,
        manager: ServiceManager,
        ready: Callable[[], str],
        metrics: MetricsServer | None = None,
        *,
        now: Callable[[], int] = time.monotonic_ns,
        send_signal: Callable[[int, int], None] = os.kill,
    ) -> None:
        self._shared = shared
        self._options = options
        self._root = root
        self._descriptor = descriptors[0]
        self._control_descriptor = descriptors[1] if len(descriptors) > 1 else None
        self._place = place
        self._ready = ready
        self._metrics = metrics
        self._clone = not (options.resend and self._resend(self._descriptor))
        self._unforked: set[int] = set()  # processes that the system did not fork when it was asked last
        # Descriptors whose requests are not queued again yet, after a process that had some has ended.
        self._left_requests: set[int] = set()
        self._manager = manager
        self._workers = RunningWorkers(send_signal)
        self._has_alone = False  # the process for requests with a strike was asked for, and is there from then on
        self._restarts = [*[RestartLimits()] * shared.workers, RestartLimits(), RestartLimits()]
        self._memory = ShortMemory()
        workers, alone, control = range(shared.workers), [shared.alone], [shared.control]
        watched = [(workers, self._descriptor), (alone, None), (control, self._control_descriptor)]
        self._watches = [
            StuckWatch({number: shared.watched(number) for number in numbers}, descriptor, options.stuck_seconds, now)
            for numbers, descriptor in watched
        ]
        self._zygote = ZygoteLink(zygote)
        self._ending = Ending(root, self._workers, manager)
        self._reloader = Reloader(shared, self._workers, self._zygote.run_command, manager)

    async def run(self) -> int:
        """Serve until the mount has ended. Returns the exit status; raises MountError if the root never answers."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._follow_zygote, nursery)
            nursery.start_soon(self._follow_signals, nursery)
            nursery.start_soon(self._follow_stuck)
            for number in range(self._options.workers):
                await self._fork(number)
            if self._control_descriptor is not None:
                await self._fork(self._shared.control)
            nursery.start_soon(self._announce)
            if self._metrics is not None:
                nursery.start_soon(self._metrics.run)
            await self._ending.over.wait()
            if self._place is not None:
                await trio.to_thread.run_sync(self._place.remove)
            for number in (self._shared.alone, self._shared.control):
                self._shared.drain(number)
            await self._ending.wait_for_workers()
            signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # the receiver ends now
            nursery.cancel_scope.cancel()
        self._workers.kill_all()
        await self._zygote.end()
        if self._ending.problem is not None:
            raise self._ending.problem
        return self._ending.status

    async def _announce(self) -> None:
        """Wait until the root answers; then call `ready` and handle reloads."""
        try:
            # A mount that was passed to us may be in another namespace, or autofs may keep us out until we are ready.
            if self._options.descriptor is None:
                await self._root.answer_within(READY_SECONDS)
        except MountError as error:
            self._ending.problem = error
            await self._ending.unmount()
            return
        self._root.widen_read_ahead()
        self._manager.notify("READY=1", f"STATUS={self._ready()}")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._reloader.run)
            nursery.start_soon(feed_watchdog, self._manager, self._root)

    async def _fork(self, number: int) -> None:
        self._shared.undrain(number)
        await self._zygote.fork(number, clone=self._clone)

    async def _fork_later(self, number: int, reason: str) -> None:
        """Try again until the system forks. Requests wait meanwhile, or are answered by other workers."""
        if number not in self._unforked:
            log.error("%s cannot be forked: %s; it is tried again each second", self._name(number), reason)
            self._unforked.add(number)
        await self._fork_after(PAUSE_SECONDS, number)

    async def _fork_after(self, seconds: float, number: int) -> None:
        await trio.sleep(seconds)
        if not self._ending.over.is_set():
            await self._fork(number)

    async def _follow_zygote(self, nursery: trio.Nursery) -> None:
        while event := await self._zygote.next_event():
            match event:
                case WorkerUnforked(number, reason):
                    nursery.start_soon(self._fork_later, number, reason)
                case WorkerStarted(number, pid):
                    self._unforked.discard(number)
                    self._workers.pids[number] = pid
                    for watch in self._watches:
                        watch.started(number)
                    # The order matters: the new process exists before the requests of the dead one are queued again.
                    # The first ones find none: those that another one has taken meanwhile would run twice.
                    descriptor = self._descriptor_of(number)
                    if descriptor in self._left_requests and not self._clone:
                        self._left_requests.discard(descriptor)
                        self._resend(descriptor)
                case WorkerEnded(number, status):
                    await self._worker_ended(number, status, nursery)
        if not self._ending.over.is_set():
            await self._ending.lose_zygote("the zygote is gone")

    async def _worker_ended(self, number: int, status: int, nursery: trio.Nursery) -> None:
        pid = self._workers.pids.pop(number, None)
        if pid is None:
            return  # we have given up this zygote
        # Anybody may kill or stop a process. What it ran is to blame only if memory was short, or if it was stuck.
        lacked_memory = self._memory.was_short()
        reason = self._workers.killed.pop(pid, None)
        is_killed = status == -signal.SIGKILL and reason in (None, STOPPED) and not lacked_memory
        shared = self._shared
        self._left_requests.add(self._descriptor_of(number))
        counters, numbers = shared.counters[number], shared.numbers.supervisor
        counters[BUSY_SINCE] = counters[PARKED] = 0
        strikes = shared.strikes.ended(
            number, badly=status not in (SESSION_ENDED, DRAINED, LACKED_ROOM) and not is_killed
        )
        numbers.add(SupervisorCount.STRIKES, strikes)
        if status == SESSION_ENDED and number != shared.control:
            self._ending.over.set()
        if self._ending.over.is_set():
            return
        if status == SESSION_ENDED:
            log.warning("the control mount has ended: %s is left without .touchfs", self._root.path)
            return
        if strikes and number < shared.workers and not self._has_alone:
            self._has_alone = True
            await self._fork(shared.alone)
        seconds = 0.0
        if status != DRAINED:
            restarts = self._restarts[number]
            is_useless, seconds = restarts.are_useless_after(status), restarts.pause_seconds(status)
            if is_useless and number < shared.workers:
                log.critical("workers keep failing: unmounting")
                await self._ending.give_up()
                return
            if is_useless:  # data are served without it
                seconds = FAILURES_SECONDS
            numbers.add(SupervisorCount.RESTARTS)
            why = "; memory is short, and the kernel kills processes" if lacked_memory else ""
            log.warning("%s (pid %d) ended with status %d: starting another%s", self._name(number), pid, status, why)
        nursery.start_soon(self._fork_after, seconds, number)

    def _name(self, number: int) -> str:
        shared = self._shared
        return {shared.alone: "the worker for requests alone", shared.control: "the control process"}.get(
            number, f"worker {number}"
        )

    def _descriptor_of(self, number: int) -> int:
        control = self._control_descriptor
        return control if control is not None and number == self._shared.control else self._descriptor

    def _resend(self, descriptor: int) -> bool:
        self._shared.resent[0] += 1
        try:
            os.write(descriptor, notifications.resend())
        except OSError as error:
            return error.errno == errno.ENODEV  # unmounted meanwhile: no request is left to resend
        return True

    async def _follow_signals(self, nursery: trio.Nursery) -> None:
        with trio.open_signal_receiver(*SIGNALS) as signals:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
            async for number in signals:
                match number:
                    case signal.SIGUSR1:
                        logs.reopen()
                    case signal.SIGHUP:
                        logs.reopen()
                        self._reloader.request()
                    case signal.SIGINT if self._ending.has_begun:
                        self._ending.abort()
                    case _ if not self._ending.has_begun:
                        nursery.start_soon(self._ending.unmount)

    async def _follow_stuck(self) -> None:
        while True:
            await trio.sleep(min(STOPPED_SECONDS / 2, self._options.stuck_seconds / 2))
            found = [each for watch in self._watches for each in watch.find(self._workers.pids).items()]
            for number, problem in found:
                pid = self._workers.pids[number]
                if pid not in self._workers.killed:
                    log.error("%s (pid %d) %s: killing it", self._name(number), pid, problem)
                self._workers.kill(number, pid, problem)
            if self._zygote.silent_seconds > FORK_SECONDS and not self._ending.over.is_set():
                await self._ending.lose_zygote(f"the zygote has not started a worker in {FORK_SECONDS:.0f} s")


def _wait_for_zygote(pid: int) -> None:
    """Wait until the zygote has exited, and kill it if it hangs."""
    exited = os.pidfd_open(pid)
    if not is_readable(exited, ZYGOTE_END_SECONDS):
        os.kill(pid, signal.SIGKILL)
    os.close(exited)
    os.waitpid(pid, 0)
