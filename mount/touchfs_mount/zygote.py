"""The zygote: the process that mounted, answered the kernel's INIT, and from then on only forks workers.

A worker must be a copy of a process in which libfuse's session is set up, and a copy of one with no threads, no
event loop in mid-run and no SQLite connection; the supervisor runs trio, so it cannot be that process. The zygote
reads exactly one request, INIT: before it libfuse has no splice pipe yet, so every worker makes a pipe of its own and
a killed one cannot leave half a request in a pipe that others read from.

It talks to its supervisor over a SOCK_SEQPACKET pair, one message a packet: it sends `{"device": …}` with the FUSE
descriptor, or `{"error": …}`; then each `{"fork": number, "clone": …}` it is sent makes a worker, answered by
`{"started": number, "pid": …}`; each worker's end is told as `{"ended": number, "status": …}`. At the end of file on
the pair it ends too.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import select
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyfuse3
import trio

from touchfs_mount.loop import Loop
from touchfs_mount.mountpoint import mounted_at
from touchfs_mount.workers import Operations, Shared, run_worker

log = logging.getLogger(__name__)

MESSAGE_SIZE = 65536


class Zygote:
    """See the module. `run` is called in a freshly forked process and does not return before the mount's end.

    `mounted` is called when that is so, to let go of what workers need not inherit.
    """

    def __init__(self, operations: Operations, shared: Shared, mounted: Callable[[], None], *, trio_loop: bool) -> None:
        self._operations = operations
        self._shared = shared
        self._mounted = mounted
        self._trio_loop = trio_loop
        self._mountpoint = self._device = ""
        self._workers: dict[int, tuple[int, int]] = {}  # pidfd: (pid, number)

    def run(self, supervisor: socket.socket, mountpoint: str, options: frozenset[str]) -> None:
        for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(ignored, signal.SIG_IGN)
        os.close(self._shared.lifeline_held)
        try:
            descriptor = self._mount(mountpoint, options)
        except RuntimeError as error:
            supervisor.send(json.dumps({"error": str(error)}).encode())
            return
        try:
            self._answer_init(descriptor)
            self._mounted()
            socket.send_fds(supervisor, [json.dumps({"device": self._device}).encode()], [descriptor])
            # What there is now is shared with the workers: keep the collector from touching, so copying, its pages.
            gc.collect()
            gc.freeze()
            self._fork_on_request(supervisor, descriptor)
        except OSError as error:  # the supervisor is gone, and left something unread
            log.info("the supervisor is gone: %s", error)
        finally:
            self._orphaned()  # whatever ends us: a mount that nobody serves is in everybody's way

    def _mount(self, mountpoint: str, options: frozenset[str]) -> int:
        before = _fuse_descriptors()
        with _stderr_of_libfuse() as said:
            try:
                pyfuse3.init(self._operations, mountpoint, set(options))
            except RuntimeError as error:
                raise RuntimeError(said() or str(error)) from error
        (descriptor,) = _fuse_descriptors() - before
        os.set_inheritable(descriptor, False)  # which libfuse leaves open for what we run
        mounted = mounted_at(mountpoint)
        self._mountpoint, self._device = mountpoint, mounted.device if mounted is not None else ""
        return descriptor

    def _answer_init(self, descriptor: int) -> None:
        answered: list[bool] = []
        self._operations.init = lambda: answered.append(True)  # type: ignore[method-assign]
        if self._trio_loop:
            trio.run(_answer_init_under_trio, answered)
        else:
            Loop(descriptor, self._shared.counters[0]).run(until=lambda: bool(answered))
        if not answered:
            raise RuntimeError("the kernel closed the session before it began")

    def _fork_on_request(self, supervisor: socket.socket, descriptor: int) -> None:
        poll = select.poll()
        poll.register(supervisor, select.POLLIN)
        while True:
            for ready, _ in poll.poll():
                if ready != supervisor.fileno():
                    poll.unregister(ready)
                    pid, number = self._workers.pop(ready)
                    os.close(ready)
                    _, status = os.waitpid(pid, 0)
                    ended = {"ended": number, "status": os.waitstatus_to_exitcode(status)}
                    supervisor.send(json.dumps(ended).encode())
                    continue
                message = supervisor.recv(MESSAGE_SIZE)
                if not message:
                    return
                command: dict[str, Any] = json.loads(message)
                pid = os.fork()
                if pid == 0:
                    supervisor.close()
                    for watched in self._workers:
                        os.close(watched)
                    self._work(descriptor, command["fork"], command["clone"])
                watched = os.pidfd_open(pid)
                self._workers[watched] = (pid, command["fork"])
                poll.register(watched, select.POLLIN)
                supervisor.send(json.dumps({"started": command["fork"], "pid": pid}).encode())

    def _orphaned(self) -> None:
        """The supervisor is gone: who sees it first detaches. Not waited for: that may need this very worker."""
        mounted = mounted_at(self._mountpoint)
        if self._shared.claim_unmount() and mounted is not None and mounted.device == self._device:
            subprocess.Popen(["fusermount3", "-u", "-z", "--", self._mountpoint], stderr=subprocess.DEVNULL)

    def _work(self, descriptor: int, number: int, clone: bool) -> None:
        """In the child. Never returns into the zygote's code."""
        status = 1
        try:
            run_worker(
                self._operations,
                descriptor,
                number,
                self._shared,
                trio_loop=self._trio_loop,
                clone=clone,
                orphaned=self._orphaned,
            )
            status = 0
        except BaseException:  # the last frame of this process: say why it ends, whatever it is
            log.critical("a worker failed", exc_info=True)
        finally:
            logging.shutdown()
            os._exit(status)


@contextmanager
def _stderr_of_libfuse() -> Iterator[Callable[[], str]]:
    """libfuse and fusermount3 write the reason of a failure to descriptor 2, and only there."""
    kept = os.dup(2)
    with open(os.memfd_create("touchfs-stderr"), "rb") as captured:
        os.dup2(captured.fileno(), 2)
        try:
            yield lambda: os.pread(captured.fileno(), MESSAGE_SIZE, 0).decode("utf-8", "replace").strip()
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def _fuse_descriptors() -> set[int]:
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{name}") == "/dev/fuse":
                found.add(int(name))
        except FileNotFoundError:
            continue
    return found


async def _answer_init_under_trio(answered: list[bool]) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(pyfuse3.main)
        while not answered:
            await trio.sleep(0.005)
        nursery.cancel_scope.cancel()
