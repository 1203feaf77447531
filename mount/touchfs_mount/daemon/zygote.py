"""The zygote: the process that mounts, answers the kernel's INIT request, and from then on only forks workers.

A worker must be a copy of a process that has no threads, no running event loop and no SQLite connection, and in which
the control mount's session is set up (`control.session`). The supervisor runs trio, so it cannot be that process.

It talks to its supervisor over a SOCK_SEQPACKET pair, one message per packet. First it sends `{"device": …}` with the
FUSE descriptors of the mount and of its control mount, or `{"error": …}`. Then it executes commands without waiting for
their results:

    {"fork": number, "clone": …}   forks the process of that number (`Shared`); sends
                                   {"started": number, "pid": …}, and when it exits
                                   {"ended": number, "status": …}; or {"unforked": number, "error": …}
    {"reload": true}               forks a child that opens the dataset again. On success it forks workers of the new
                                   generation from now on, and sends {"reloaded": null}. On failure the old generation
                                   stays, and it sends {"reloaded": "error message"}
    {"invalidate": true}           sent after a reload, when no worker of the old generation is left: forks a child that
                                   invalidates the kernel's caches; sends {"invalidated": null}, or an error message
    {"end": true}                  the mount has ended as intended

End of file on the pair without `end` means that the supervisor has died; then the zygote detaches the mount.
"""

from __future__ import annotations

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

from touchfs.core.errors import MountError
from touchfs_mount.beside.program import reap_programs
from touchfs_mount.control import session as control_session
from touchfs_mount.control.session import ControlSession
from touchfs_mount.daemon.children import Children
from touchfs_mount.daemon.renewal import Renewal, Renewer
from touchfs_mount.daemon.serving import Serving
from touchfs_mount.daemon.session import Session, mount_session
from touchfs_mount.daemon.shared import Shared
from touchfs_mount.daemon.worker import run_alone, run_control, run_worker
from touchfs_mount.mountpoints.connecting import Connecting, connect
from touchfs_mount.mountpoints.control_place import KIND, ControlPlace
from touchfs_mount.mountpoints.mountpoint import mounted_at
from touchfs_mount.mountpoints.options import MountOptions

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
    others must not inherit. `place` is where the control mount is to be, if there is to be one.
    """

    def __init__(
        self,
        serving: Serving,
        renewal: Renewal,
        shared: Shared,
        mounted: Callable[[], None],
        options: MountOptions,
        place: ControlPlace | None,
    ) -> None:
        self._serving = serving
        self._renewal = renewal
        self._shared = shared
        self._mounted = mounted
        self._options = options
        self._place = place
        self._over = False

    def run(self, supervisor: socket.socket) -> int:
        """Run the zygote in a freshly forked process, until the mount ends. Returns the exit status."""
        for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
            signal.signal(ignored, signal.SIG_IGN)
        os.close(self._shared.lifeline_write)
        session = None
        try:
            session = mount_session(self._options)
            control = self._control(session)
            self._mounted()
            with suppress(OSError):  # if the supervisor is gone, `serve` notices
                descriptors = [session.descriptor, *([] if control is None else [control.descriptor])]
                socket.send_fds(supervisor, [json.dumps({"device": session.device}).encode()], descriptors)
            self.serve(supervisor, session, control)
        except MountError as error:
            supervisor.send(json.dumps({"error": str(error), "status": error.exit_status}).encode())
        finally:
            if not self._over and session is not None:
                self._orphaned(session)  # whatever ends this process: a mount without a server would block its users
        return 0

    def _control(self, session: Session) -> ControlSession | None:
        place, options = self._place, self._options
        if place is None:
            return None
        descriptor = options.control_descriptor
        if descriptor is None:
            descriptor = connect(Connecting(place.path, KIND, session.device, False, True, options.admits_others))
        return control_session.begin(descriptor, place.path)

    def serve(self, supervisor: socket.socket, session: Session, control: ControlSession | None) -> None:
        """Execute commands until the supervisor sends `end`, or is gone."""
        poll = select.poll()
        poll.register(supervisor, select.POLLIN)
        self._supervisor, self._session, self._control_session = supervisor, session, control
        self._children = Children(poll, hidden=(supervisor.fileno(),))
        also = None if control is None else control.descriptor
        self._renewer = Renewer(self._renewal, self._children, session.descriptor, also, self._send)
        try:
            while not self._over:
                for ready, _ in poll.poll(LINGERING_MS):
                    try:
                        self._handle(ready)
                    except OSError as error:  # what was asked for fails, and the mount goes on
                        log.error("%s", error)
                        time.sleep(_PAUSE_SECONDS)
                self._children.report_lingering()
                self._renewal.meanwhile()
                reap_programs()
        except _SupervisorGoneError as error:
            log.info("the supervisor is gone: %s", error)
        finally:
            self._renewer.stop()

    def _handle(self, ready: int) -> None:
        if self._children.reap(ready):
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

    def _work(self, number: int, clone: bool) -> int:
        shared, session, serving = self._shared, self._session, self._serving
        seconds, orphaned = self._options.timeout_seconds, partial(self._orphaned, session)
        control = self._control_session
        if number == shared.control and control is not None:
            os.close(session.descriptor)  # or the mount could not end before this process
            return run_control(serving, control, shared, clone=clone, orphaned=orphaned)
        if control is not None:
            os.close(control.descriptor)
        if number == shared.alone:
            return run_alone(serving, session.descriptor, shared, seconds, orphaned)
        traces = self._options.trace
        return run_worker(
            serving, session.descriptor, number, shared, seconds, clone=clone, traces=traces, orphaned=orphaned
        )

    def _worker_ended(self, number: int, status: int) -> None:
        self._send({"ended": number, "status": status})

    def _orphaned(self, session: Session) -> None:
        """The supervisor is gone: the first process that notices detaches the mount. It does not wait for fusermount3,
        which may need an answer from this very process.
        """
        if not self._shared.claim_unmount():
            return
        mounted = mounted_at(self._options.path)
        ours = [self._options.path] if mounted is not None and mounted.device == session.device else []
        for path in (*ours, *([] if self._place is None else [self._place.path])):
            subprocess.Popen(["fusermount3", "-u", "-z", "--", path], stderr=subprocess.DEVNULL)
