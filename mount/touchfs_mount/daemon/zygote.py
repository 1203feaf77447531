"""The zygote: the process that mounted, answered the kernel's INIT, and from then on only forks workers.

A worker must be a copy of a process in which libfuse's session is set up, and a copy of one with no threads, no
event loop in mid-run and no SQLite connection; the supervisor runs trio, so it cannot be that process. The zygote
reads exactly one request, INIT: before it libfuse has no splice pipe yet, so every worker makes a pipe of its own and
a killed one cannot leave half a request in a pipe that others read from.

It talks to its supervisor over a SOCK_SEQPACKET pair, one message a packet: it sends `{"device": …}` with the FUSE
descriptor, or `{"error": …}`. Then it does what it is sent, and never waits for it:

    {"fork": number, "clone": …}   makes a worker: {"started": number, "pid": …}, and at its end
                                   {"ended": number, "status": …}
    {"reload": true}               has a child read the dataset anew, and forks workers of the new generation from when
                                   it says {"reloaded": null}; or the old one stays: {"reloaded": "why"}
    {"invalidate": true}           then, when no worker of the old generation is left, has a child tell the kernel what
                                   is not so any more: {"invalidated": null}, or "why not"
    {"end": true}                  the mount is over, as it should be

Workers ask it through the door for processes that run one request each (`alone`).

At the end of file on the pair without that word the supervisor has died, and the mount is detached.
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
# Where the kernel has but 12 background requests under way.
HANGING_IN_KERNEL_MAX = 8


@dataclass(frozen=True, slots=True)
class Renewal:
    """How the operations come to another generation of what they serve.

    `reopen` is called in a child of the zygote, where it may take its time; what it returns goes, pickled, to `adopt`
    in the zygote. What that returns is called in a child again, with the FUSE descriptor, once workers of the old
    generation are gone.
    """

    reopen: Callable[[], Any]
    adopt: Callable[[Any], Callable[[int], None]]


class Zygote:
    """See the module. `run` is called in a freshly forked process and does not return before the mount's end.

    `mounted` is called when that is so, to let go of what workers need not inherit.
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
        for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(ignored, signal.SIG_IGN)
        os.close(self._shared.lifeline_held)
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
        except OSError as error:  # the supervisor is gone, and left something unread
            log.info("the supervisor is gone: %s", error)
        finally:
            if self._reopening is not None:
                os.kill(self._reopening, signal.SIGKILL)
            if not self._over:
                self._orphaned()  # whatever ends us: a mount that nobody serves is in everybody's way
        return 0

    def _mount(self, mountpoint: str, options: frozenset[str]) -> int:
        before = fuse_descriptors()
        with stderr_of_libfuse() as said:
            try:
                pyfuse3.init(self._operations, mountpoint, set(options))
            except RuntimeError as error:
                raise RuntimeError(said() or str(error)) from error
        (descriptor,) = fuse_descriptors() - before
        os.set_inheritable(descriptor, False)  # which libfuse leaves open for what we run
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
        log.info("no fusectl: of reads that hang, few are kept waiting, as the kernel has few under way at once")
        return PoolLimits(timeout_seconds=seconds, hanging_max=max(HANGING_IN_KERNEL_MAX // self._options.workers, 1))

    def _follow_supervisor(self) -> None:
        """Until it says that the mount is over, or is gone."""
        self._poll.register(self._supervisor, select.POLLIN)
        self._poll.register(self._shared.door.inside, select.POLLIN)
        while not self._over:
            for ready, _ in self._poll.poll(LINGERING_MS):
                if ready in self._children:
                    self._child_ended(ready)
                elif ready == self._shared.door.inside.fileno():
                    self._fork_for_request(self._shared.door.receive())
                elif message := self._supervisor.recv(MESSAGE_SIZE):
                    self._obey(json.loads(message))
                else:
                    return
            self._pass_over_lingering()

    def _pass_over_lingering(self) -> None:
        """A process has ended for us when its first thread has. Another one may wait in a call of a file system that
        does not answer, where nothing ends it.
        """
        for watched, (pid, ended) in list(self._children.items()):
            status = status_of_lingering(pid)
            if status is not None:
                self._children[watched] = pid, lambda status: None
                ended(os.waitstatus_to_exitcode(status))

    def _obey(self, command: dict[str, Any]) -> None:
        match command:
            case {"fork": number, "clone": clone}:
                ended = partial(self._worker_ended, number)
                self._tell({"started": number, "pid": self._fork(partial(self._work, number, clone), ended)})
            case {"reload": _}:
                outcome = os.memfd_create("touchfs-generation", os.MFD_CLOEXEC)
                self._reopening = self._fork_aside(partial(self._reopen, outcome), partial(self._reopened, outcome))
            case {"invalidate": _}:
                self._fork_aside(self._tell_the_kernel, self._told_the_kernel)
            case {"end": _}:
                self._over = True

    def _tell(self, news: dict[str, object]) -> None:
        self._supervisor.send(json.dumps(news).encode())

    def _fork(self, run: Callable[[], int], ended: Callable[[int], None]) -> int:
        """The pid of a child that runs a function and exits with what it returns; `ended` is told its status."""
        pid = os.fork()
        if pid == 0:
            be_the_child(run, [self._supervisor.fileno(), *self._children])
        watched = os.pidfd_open(pid)
        self._children[watched] = pid, ended
        self._poll.register(watched, select.POLLIN)
        return pid

    def _fork_aside(self, run: Callable[[], int], ended: Callable[[int], None]) -> int | None:
        """As `_fork`, for what the mount can do without: where no child can be made, it is as if one had failed."""
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
        """In a process that is nobody's child: whoever kills all workers is not to kill it, too."""
        if os.fork():
            return 0
        os.close(self._descriptor)  # or the mount would not end before we do
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
        self._tell({"ended": number, "status": status})

    def _reopen(self, outcome: int) -> int:
        os.close(self._descriptor)  # or the mount would not end before we do, whoever dies
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
                told = file.read().decode("utf-8", "replace") if status > 0 else ""
                self._tell({"reloaded": told or f"the process that read it ended with status {status}"})
                return
            try:
                self._invalidate = self._renewal.adopt(pickle.load(file))
            except TouchfsError as error:
                self._tell({"reloaded": str(error)})
                return
        _freeze()
        self._tell({"reloaded": None})

    def _tell_the_kernel(self) -> int:
        # Should all others die while we wait for a directory's lock, its holder's request must fail: so it must not
        # have come through a descriptor that we have, too.
        clone_session(self._descriptor)
        self._invalidate(self._descriptor)
        return 0

    def _told_the_kernel(self, status: int) -> None:
        self._invalidate = _nothing
        self._tell({"invalidated": f"the process that tells it ended with status {status}" if status else None})

    def _orphaned(self) -> None:
        """The supervisor is gone: who sees it first detaches. Not waited for: that may need this very worker."""
        mounted = mounted_at(self._mountpoint)
        if self._shared.claim_unmount() and mounted is not None and mounted.device == self._device:
            subprocess.Popen(["fusermount3", "-u", "-z", "--", self._mountpoint], stderr=subprocess.DEVNULL)


def status_of_lingering(pid: int) -> int | None:
    """How a process ended, as wait(2) has it, whose first thread has ended and another has not; else None."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            state, *told = file.read().rpartition(")")[2].split()
        return int(told[-1]) if state == "Z" and len(os.listdir(f"/proc/{pid}/task")) > 1 else None
    except OSError:
        return None


def be_the_child(run: Callable[[], int], not_ours: list[int]) -> None:
    """In a child: run it with these descriptors closed, and exit with what it returns. Never returns."""
    status = 1
    try:
        for descriptor in not_ours:
            os.close(descriptor)
        status = run()
    except BaseException:  # the last frame of this process: say why it ends, whatever it is
        log.critical("process %d failed", os.getpid(), exc_info=True)
    finally:
        logging.shutdown()
        os._exit(status)


def _freeze() -> None:
    """What there is now is shared with the workers: keep the collector from touching, so copying, its pages."""
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
