"""The zygote: the process that mounts, answers the kernel's INIT request, and from then on only forks workers.

A worker must be a copy of a process in which libfuse's session is set up (`session`), and which has no threads, no
running event loop and no SQLite connection. The supervisor runs trio, so it cannot be that process.

It talks to its supervisor over a SOCK_SEQPACKET pair, one message per packet. First it sends `{"device": …}` with the
FUSE descriptor, or `{"error": …}`. Then it executes commands without waiting for their results:

    {"fork": number, "clone": …}   forks a worker; sends {"started": number, "pid": …}, and when the worker exits
                                   {"ended": number, "status": …}; or {"unforked": number, "error": …}
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
import select
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from touchfs_mount.beside.program import reap_programs
from touchfs_mount.daemon.children import Children
from touchfs_mount.daemon.renewal import Renewal, Renewer
from touchfs_mount.daemon.session import MountedSession, mount_session
from touchfs_mount.daemon.shared import Shared
from touchfs_mount.daemon.worker import run_worker
from touchfs_mount.mounting.libfuse import MountOptions
from touchfs_mount.mounting.mountpoint import mounted_at
from touchfs_mount.requests.environment import Operations
from touchfs_mount.requests.one_request import run_request

log = logging.getLogger(__name__)

MESSAGE_SIZE = 65536
LINGERING_MS = 500
# After an error, so that one that lasts does not take a processor.
_PAUSE_SECONDS = 0.1


class _SupervisorGoneError(Exception):
    """The supervisor has ended, perhaps with messages unread."""


@contextmanager
def _of_supervisor() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _SupervisorGoneError(str(error)) from error


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
        self._over = False

    def run(self, supervisor: socket.socket) -> int:
        """Run the zygote in a freshly forked process, until the mount ends. Returns the exit status."""
        for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
            signal.signal(ignored, signal.SIG_IGN)
        os.close(self._shared.lifeline_write)
        try:
            session = mount_session(self._operations, self._options)
        except RuntimeError as error:
            supervisor.send(json.dumps({"error": str(error)}).encode())
            return 0
        try:
            session.answer_init(self._operations, self._options, self._shared.counters[0])
            self._mounted()
            with suppress(OSError):  # if the supervisor is gone, `serve` notices
                socket.send_fds(supervisor, [json.dumps({"device": session.device}).encode()], [session.descriptor])
            self.serve(supervisor, session)
        finally:
            if not self._over:
                self._orphaned(session)  # whatever ends this process: a mount without a server would block its users
        return 0

    def serve(self, supervisor: socket.socket, session: MountedSession) -> None:
        """Execute commands until the supervisor sends `end`, or is gone."""
        self._limits = session.pool_limits(self._options)
        poll = select.poll()
        poll.register(supervisor, select.POLLIN)
        poll.register(self._shared.door.inside, select.POLLIN)
        self._supervisor, self._session = supervisor, session
        # When we end, the door must be closed: a child that held it open would wait for processes that nobody forks.
        self._children = Children(poll, hidden=(supervisor.fileno(), self._shared.door.inside.fileno()))
        self._renewer = Renewer(self._renewal, self._children, session.descriptor, self._send)
        gc.freeze()  # as `children.freeze`, but without looking for garbage: that would delay the first worker
        try:
            while not self._over:
                for ready, _ in poll.poll(LINGERING_MS):
                    try:
                        self._handle(ready)
                    except OSError as error:  # what was asked for fails, and the mount goes on
                        log.error("%s", error)
                        time.sleep(_PAUSE_SECONDS)
                self._children.report_lingering()
                reap_programs()
        except _SupervisorGoneError as error:
            log.info("the supervisor is gone: %s", error)
        finally:
            self._renewer.stop()

    def _handle(self, ready: int) -> None:
        """Do what a readable descriptor asks for."""
        if self._children.reap(ready):
            return
        if ready == self._shared.door.inside.fileno():
            self._fork_for_request(self._shared.door.receive())
            return
        with _of_supervisor():
            message = self._supervisor.recv(MESSAGE_SIZE)
        if not message:
            raise _SupervisorGoneError("it has closed its connection")
        self._execute(json.loads(message))

    def _execute(self, command: dict[str, Any]) -> None:
        match command:
            case {"fork": number, "clone": clone}:
                run, ended = partial(self._work, number, clone), partial(self._worker_ended, number)
                try:
                    pid = self._children.fork(run, ended)
                except OSError as error:
                    self._send({"unforked": number, "error": str(error)})
                else:
                    self._send({"started": number, "pid": pid})
            case {"reload": _}:
                self._renewer.reload()
            case {"invalidate": _}:
                self._renewer.invalidate()
            case {"end": _}:
                self._over = True

    def _send(self, event: dict[str, object]) -> None:
        with _of_supervisor():
            self._supervisor.send(json.dumps(event).encode())

    def _fork_for_request(self, connection: int) -> None:
        self._children.fork_aside(partial(self._run_request, connection), lambda status: None)
        os.close(connection)

    def _run_request(self, connection: int) -> int:
        # Fork again, so that the process is not a child of the zygote: a user who kills all workers must not kill it.
        if os.fork():
            return 0
        os.close(self._session.descriptor)  # or the mount could not end before this process
        return run_request(self._operations, self._shared.strikes, connection, self._options.stuck_seconds)

    def _work(self, number: int, clone: bool) -> int:
        return run_worker(
            self._operations,
            self._session.descriptor,
            number,
            self._shared,
            self._limits,
            trio_loop=self._options.trio_loop,
            stuck_seconds=self._options.stuck_seconds,
            clone=clone,
            orphaned=partial(self._orphaned, self._session),
        )

    def _worker_ended(self, number: int, status: int) -> None:
        self._send({"ended": number, "status": status})

    def _orphaned(self, session: MountedSession) -> None:
        """The supervisor is gone: the first process that notices detaches the mount. It does not wait for fusermount3,
        which may need an answer from this very worker.
        """
        path = self._options.path
        mounted = mounted_at(path)
        if self._shared.claim_unmount() and mounted is not None and mounted.device == session.device:
            subprocess.Popen(["fusermount3", "-u", "-z", "--", path], stderr=subprocess.DEVNULL)
