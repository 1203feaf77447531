"""The zygote: the process that mounts, answers the kernel's INIT request, and from then on only forks workers.

A worker must be a copy of a process in which libfuse's session is set up, and which has no threads, no running event
loop and no SQLite connection. The supervisor runs trio, so it cannot be that process. The zygote reads exactly one
request, INIT. Until then libfuse has no splice pipe, so every worker makes a pipe of its own, and a killed worker
cannot leave half a request in a pipe that others read.

It talks to its supervisor over a SOCK_SEQPACKET pair, one message per packet. First it sends `{"device": …}` with the
FUSE descriptor, or `{"error": …}`. Then it executes commands without waiting for their results:

    {"fork": number, "clone": …}   forks a worker; sends {"started": number, "pid": …}, and when the worker exits
                                   {"ended": number, "status": …}
    {"reload": true}               forks a child that opens the dataset again. On success it forks workers of the new
                                   generation from now on, and sends {"reloaded": null}. On failure the old generation
                                   stays, and it sends {"reloaded": "error message"}
    {"invalidate": true}           sent after a reload, when no worker of the old generation is left: forks a child that
                                   invalidates the kernel's caches; sends {"invalidated": null}, or an error message
    {"end": true}                  the mount has ended as intended

Workers request processes that run a single request each through the door (`alone`).

End of file on the pair without `end` means that the supervisor has died; then the zygote detaches the mount.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import pickle
import select
import signal
import socket
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyfuse3
import trio

from touchfs.errors import TouchfsError
from touchfs_mount.daemon.worker import Operations, Shared, clone_session, run_worker
from touchfs_mount.loop import kernel_queue
from touchfs_mount.loop.loop import Loop
from touchfs_mount.loop.pool import PoolLimits
from touchfs_mount.mounting.libfuse import MountOptions, fuse_descriptors, stderr_of_libfuse
from touchfs_mount.mounting.mountpoint import mounted_at
from touchfs_mount.requests.one_request import run_request

log = logging.getLogger(__name__)

MESSAGE_SIZE = 65536
LINGERING_MS = 500
# Limit of parked requests that hang, if the kernel allows only 12 background requests.
HANGING_IN_KERNEL_MAX = 8


@dataclass(frozen=True, slots=True)
class Renewal:
    """The functions that switch the operations to a new generation of the dataset.

    `reopen` is called in a child of the zygote, where it may take long; its result is pickled and passed to `adopt` in
    the zygote. `adopt` returns a function that is called in another child, with the FUSE descriptor, once all workers
    of the old generation have exited.
    """

    reopen: Callable[[], Any]
    adopt: Callable[[Any], Callable[[int], None]]


class Zygote:
    """The zygote process (see the module docstring). `mounted` is called after mounting, to release resources that
    workers must not inherit.
    """

    def __init__(
        self,
        operations: Operations,
        renewal: Renewal,
        shared: Shared,
        mounted: Callable[[], None],
        options: MountOptions,
    ) -> None:
        self._operations = operations
        self._renewal = renewal
        self._shared = shared
        self._mounted = mounted
        self._options = options
        self._mountpoint = self._device = ""
        self._over = False
        self._reopening: int | None = None
        self._invalidate: Callable[[int], None] = _nothing
        self._poll = select.poll()
        self._children: dict[int, tuple[int, Callable[[int], None]]] = {}  # pidfd: (pid, called with its exit status)

    def run(self, supervisor: socket.socket) -> int:
        """Run the zygote in a freshly forked process, until the mount ends. Returns the exit status."""
        for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(ignored, signal.SIG_IGN)
        os.close(self._shared.lifeline_write)
        try:
            descriptor = self._mount(self._options.path, self._options.fuse_options)
        except RuntimeError as error:
            supervisor.send(json.dumps({"error": str(error)}).encode())
            return 0
        try:
            self._answer_init(descriptor)
            self._limits = self._pool_limits()
            self._mounted()
            socket.send_fds(supervisor, [json.dumps({"device": self._device}).encode()], [descriptor])
            self._supervisor, self._descriptor = supervisor, descriptor
            _freeze()
            self._follow_supervisor()
        except OSError as error:  # the supervisor is gone, and left messages unread
            log.info("the supervisor is gone: %s", error)
        finally:
            if self._reopening is not None:
                os.kill(self._reopening, signal.SIGKILL)
            if not self._over:
                self._orphaned()  # whatever ends this process: a mount without a server would block all its users
        return 0

    def _mount(self, mountpoint: str, options: frozenset[str]) -> int:
        before = fuse_descriptors()
        with stderr_of_libfuse() as read_stderr:
            try:
                pyfuse3.init(self._operations, mountpoint, set(options))
            except RuntimeError as error:
                raise RuntimeError(read_stderr() or str(error)) from error
        (descriptor,) = fuse_descriptors() - before
        os.set_inheritable(descriptor, False)  # libfuse leaves it open for programs that we run
        mounted = mounted_at(mountpoint)
        self._mountpoint, self._device = mountpoint, mounted.device if mounted is not None else ""
        return descriptor

    def _answer_init(self, descriptor: int) -> None:
        answered: list[bool] = []
        self._operations.init = lambda: answered.append(True)  # type: ignore[method-assign]
        if self._options.trio_loop:
            trio.run(_answer_init_under_trio, answered)
        else:
            Loop(descriptor, self._shared.counters[0]).run(until=lambda: bool(answered))
        if not answered:
            raise RuntimeError("the kernel closed the session before it began")

    def _pool_limits(self) -> PoolLimits:
        seconds = self._options.timeout_seconds
        if kernel_queue.widen(self._device):
            return PoolLimits(timeout_seconds=seconds)
        log.info("no fusectl: the kernel runs few background requests at once, so few hanging reads are kept waiting")
        return PoolLimits(timeout_seconds=seconds, hanging_max=max(HANGING_IN_KERNEL_MAX // self._options.workers, 1))

    def _follow_supervisor(self) -> None:
        """Execute commands until the supervisor sends `end`, or is gone."""
        self._poll.register(self._supervisor, select.POLLIN)
        self._poll.register(self._shared.door.inside, select.POLLIN)
        while not self._over:
            for ready, _ in self._poll.poll(LINGERING_MS):
                if ready in self._children:
                    self._child_ended(ready)
                elif ready == self._shared.door.inside.fileno():
                    self._fork_for_request(self._shared.door.receive())
                elif message := self._supervisor.recv(MESSAGE_SIZE):
                    self._execute(json.loads(message))
                else:
                    return
            self._report_lingering()

    def _report_lingering(self) -> None:
        """Report children whose main thread has ended as ended. Another thread of theirs may hang in a call to a file
        system that does not answer, where not even SIGKILL ends it.
        """
        for watched, (pid, ended) in list(self._children.items()):
            status = status_of_lingering(pid)
            if status is not None:
                self._children[watched] = pid, lambda status: None
                ended(os.waitstatus_to_exitcode(status))

    def _execute(self, command: dict[str, Any]) -> None:
        match command:
            case {"fork": number, "clone": clone}:
                ended = partial(self._worker_ended, number)
                self._send({"started": number, "pid": self._fork(partial(self._work, number, clone), ended)})
            case {"reload": _}:
                outcome = os.memfd_create("touchfs-generation", os.MFD_CLOEXEC)
                self._reopening = self._fork_aside(partial(self._reopen, outcome), partial(self._reopened, outcome))
            case {"invalidate": _}:
                self._fork_aside(self._run_invalidation, self._invalidation_ended)
            case {"end": _}:
                self._over = True

    def _send(self, event: dict[str, object]) -> None:
        self._supervisor.send(json.dumps(event).encode())

    def _fork(self, run: Callable[[], int], ended: Callable[[int], None]) -> int:
        """Fork a child that runs a function and exits with its result; return the pid. `ended` gets the exit status."""
        pid = os.fork()
        if pid == 0:
            run_child_and_exit(run, [self._supervisor.fileno(), *self._children])
        watched = os.pidfd_open(pid)
        self._children[watched] = pid, ended
        self._poll.register(watched, select.POLLIN)
        return pid

    def _fork_aside(self, run: Callable[[], int], ended: Callable[[int], None]) -> int | None:
        """As `_fork`, for a child that the mount can do without: if the fork fails, `ended` gets status 1."""
        try:
            return self._fork(run, ended)
        except OSError:
            log.exception("no child can be forked")
            ended(1)
            return None

    def _child_ended(self, watched: int) -> None:
        pid, ended = self._children.pop(watched)
        self._poll.unregister(watched)
        os.close(watched)
        _, status = os.waitpid(pid, 0)
        ended(os.waitstatus_to_exitcode(status))

    def _fork_for_request(self, connection: int) -> None:
        self._fork_aside(partial(self._run_request, connection), lambda status: None)
        os.close(connection)

    def _run_request(self, connection: int) -> int:
        # Fork again, so that the process is not a child of the zygote: a user who kills all workers must not kill it.
        if os.fork():
            return 0
        os.close(self._descriptor)  # or the mount could not end before this process
        return run_request(self._operations, self._shared.strikes, connection, self._options.stuck_seconds)

    def _work(self, number: int, clone: bool) -> int:
        return run_worker(
            self._operations,
            self._descriptor,
            number,
            self._shared,
            self._limits,
            trio_loop=self._options.trio_loop,
            stuck_seconds=self._options.stuck_seconds,
            clone=clone,
            orphaned=self._orphaned,
        )

    def _worker_ended(self, number: int, status: int) -> None:
        self._send({"ended": number, "status": status})

    def _reopen(self, outcome: int) -> int:
        os.close(self._descriptor)  # or the mount could not end before this process, even if all others die
        with open(outcome, "wb") as file:
            try:
                pickle.dump(self._renewal.reopen(), file)
            except TouchfsError as error:
                file.write(str(error).encode("utf-8", "replace"))
                return 1
        return 0

    def _reopened(self, outcome: int, status: int) -> None:
        self._reopening = None
        with open(outcome, "rb") as file:
            file.seek(0)
            if status:
                message = file.read().decode("utf-8", "replace") if status > 0 else ""
                self._send({"reloaded": message or f"the process that read it ended with status {status}"})
                return
            try:
                self._invalidate = self._renewal.adopt(pickle.load(file))
            except TouchfsError as error:
                self._send({"reloaded": str(error)})
                return
        _freeze()
        self._send({"reloaded": None})

    def _run_invalidation(self) -> int:
        # This process may wait for a directory's lock, whose holder waits for a request. If all other processes die,
        # the kernel must fail that request; it does so only if this process does not share their descriptor.
        clone_session(self._descriptor)
        self._invalidate(self._descriptor)
        return 0

    def _invalidation_ended(self, status: int) -> None:
        self._invalidate = _nothing
        error = f"the process that invalidates its caches ended with status {status}"
        self._send({"invalidated": error if status else None})

    def _orphaned(self) -> None:
        """The supervisor is gone: the first process that notices detaches the mount. It does not wait for fusermount3,
        which may need an answer from this very worker.
        """
        mounted = mounted_at(self._mountpoint)
        if self._shared.claim_unmount() and mounted is not None and mounted.device == self._device:
            subprocess.Popen(["fusermount3", "-u", "-z", "--", self._mountpoint], stderr=subprocess.DEVNULL)


def status_of_lingering(pid: int) -> int | None:
    """The wait(2) status of a process whose main thread has ended while another thread has not; else None."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            state, *fields = file.read().rpartition(")")[2].split()
        return int(fields[-1]) if state == "Z" and len(os.listdir(f"/proc/{pid}/task")) > 1 else None
    except OSError:
        return None


def run_child_and_exit(run: Callable[[], int], close: list[int]) -> None:
    """In a forked child, close these descriptors, run a function, and exit with its result. Never returns."""
    status = 1
    try:
        for descriptor in close:
            os.close(descriptor)
        status = run()
    except BaseException:  # the last frame of this process: log the reason, whatever it is
        log.critical("process %d failed", os.getpid(), exc_info=True)
    finally:
        logging.shutdown()
        os._exit(status)


def _freeze() -> None:
    """Exclude all present objects from garbage collection, which would write to pages shared with workers: each write
    copies a page.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()


def _nothing(descriptor: int) -> None: ...


async def _answer_init_under_trio(answered: list[bool]) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(pyfuse3.main)
        while not answered:
            await trio.sleep(0.005)
        nursery.cancel_scope.cancel()
