"""Running a request alone, in a process of its own, so that no other request dies or waits with it.

A worker requests a process from the zygote through a socket that all workers share (the *door*), and passes it one end
of a connection. The worker sends the name of a handler and its arguments, and receives the handler's result. Both ends
are our own code, so messages are pickled. The process removes the strike when it has an answer.

The worker decides about the outcome. If the process begins and exits without an answer, the request has killed it;
because another program may have killed it, this must happen `DEATHS` times. A process that does not answer in time is
stuck, unless it waits for a file or for the state store: then it reports that regularly, and may continue.
"""

from __future__ import annotations

import errno
import os
import signal
import socket
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from pyfuse3 import FUSEError

from touchfs.errors import FormatError, SourceError
from touchfs_mount.requests.packed import pack
from touchfs_mount.requests.strikes import Strikes

DEATHS = 3
_TRIES = 10


class Answer(NamedTuple):
    """The result of a handler, and the entries that it listed: `(name, attributes, cookie)` as for `readdir_reply`."""

    returned: Any
    listed: list[tuple[bytes, Any, int]]


class Door:
    """The socket through which workers request processes. Created before the zygote is forked, which uses `inside`."""

    def __init__(self) -> None:
        self.inside, self._outside = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)

    def ask(self) -> Connection:
        """Request a process, and return a connection to it. The connection is closed at once if the fork fails.

        Raises SourceError if the zygote has ended.
        """
        ours, theirs = Pipe()
        with theirs:
            try:
                socket.send_fds(self._outside, [b"?"], [theirs.fileno()])
            except ConnectionError as error:
                ours.close()
                raise SourceError("no process can be forked for this request: the mount has ended") from error
        return ours

    def receive(self) -> int:
        """In the zygote, receive a request: the descriptor of the connection's other end.

        Raises OSError if this process may open no more; the other end is closed then.
        """
        _, descriptors, _, _ = socket.recv_fds(self.inside, 1, 1)
        if not descriptors:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return descriptors[0]


class Alone:
    """Runs requests with a strike, for one worker."""

    def __init__(self, strikes: Strikes, door: Door, stuck_seconds: float) -> None:
        self.strikes = strikes
        self._door = door
        self._stuck_seconds = stuck_seconds

    def answer(self, key: int, name: str, arguments: tuple[Any, ...]) -> Answer:
        """Run the handler called `name`, and wait for its answer. Raises FUSEError if the handler does, and FormatError
        if the process died of the request or was stuck.
        """
        if self.strikes.is_refused(key):
            raise FUSEError(errno.EIO)  # the reason was reported when it was refused first
        request = key, name, tuple(map(pack, arguments))
        outcome = _Outcome()
        while not outcome.problem:
            with self._door.ask() as connection:
                answer = self._follow(connection, request, outcome)
            if answer is not None:
                if outcome.errno:
                    raise FUSEError(outcome.errno)
                return answer
        self.strikes.refuse(key)
        raise FormatError(f"{name} is refused for a minute: {outcome.problem}", path=outcome.path or None)

    def _follow(
        self, connection: Connection, request: tuple[int, str, tuple[Any, ...]], outcome: _Outcome
    ) -> Answer | None:
        """Follow one process until it ends. None if it gave no answer."""
        pid = 0
        try:
            connection.send(request)
            while connection.poll(self._stuck_seconds):
                match connection.recv():
                    case "began", pid:
                        pass
                    case "path", path:
                        outcome.path = path
                    case "errno", number:
                        outcome.errno = number
                        return Answer(None, [])
                    case "answer", answer:
                        return Answer(*answer)
            if pid:
                outcome.problem = f"it takes over {self._stuck_seconds:g} s"
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        except (EOFError, ConnectionError):
            outcome.deaths += pid != 0
            if outcome.deaths == DEATHS:
                outcome.problem = "it kills the process that runs it"
        outcome.failures += pid == 0
        if outcome.failures == _TRIES:
            raise SourceError("no process can be forked for this request")
        return None


class _Outcome:
    """The results of the processes for one request, and how many of them died or could not be forked."""

    def __init__(self) -> None:
        self.path = ""
        self.errno = self.deaths = self.failures = 0
        self.problem = ""
