"""Running a request alone: in a process made for it, so that nothing else dies or waits with it.

A worker asks the zygote for one, through a socket that all workers share (the *door*), and hands it one end of a
connection. Through that go the name of a handler and its arguments, then what the handler returns. All of it is ours at
both ends, so it is pickled. The process takes the strike away when it has an answer.

It is the worker that judges. A process that began and ended without an answer has died of the request; as somebody else
may have killed it, this must happen `DEATHS` times. One that does not answer in time is stuck, unless it waits for a
file or for the state store: then it says so now and then, and may go on.
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
    """What a handler returned, and the entries that it listed: the arguments of `readdir_reply` after the first."""

    returned: Any
    listed: list[tuple[bytes, Any, int]]


class Door:
    """Where workers ask for a process. Made before the fork of the zygote, which answers `inside`."""

    def __init__(self) -> None:
        self.inside, self._outside = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)

    def ask(self) -> Connection:
        """A connection to a process, which ends at once where none can be made."""
        ours, theirs = Pipe()
        with theirs:
            socket.send_fds(self._outside, [b"?"], [theirs.fileno()])
        return ours

    def receive(self) -> int:
        """For the zygote: the descriptor of the other end of the next connection."""
        _, (descriptor, *_), _, _ = socket.recv_fds(self.inside, 1, 1)
        return descriptor


class Alone:
    """What a worker has for requests with a strike."""

    def __init__(self, strikes: Strikes, door: Door, stuck_seconds: float) -> None:
        self.strikes = strikes
        self._door = door
        self._stuck_seconds = stuck_seconds

    def answer(self, key: int, name: str, arguments: tuple[Any, ...]) -> Answer:
        """Wait for what the handler of this name returns. Raises FUSEError as that did, and FormatError where the
        process died of it, or was stuck.
        """
        if self.strikes.is_refused(key):
            raise FUSEError(errno.EIO)  # it was told why when it was refused first
        request = key, name, tuple(map(pack, arguments))
        told = _Outcome()
        while not told.problem:
            with self._door.ask() as connection:
                answer = self._follow(connection, request, told)
            if answer is not None:
                if told.errno:
                    raise FUSEError(told.errno)
                return answer
        self.strikes.refuse(key)
        raise FormatError(f"{name} is refused for a minute: {told.problem}", path=told.path or None)

    def _follow(
        self, connection: Connection, request: tuple[int, str, tuple[Any, ...]], told: _Outcome
    ) -> Answer | None:
        """One process, up to its end. None if there was no answer."""
        pid = 0
        try:
            connection.send(request)
            while connection.poll(self._stuck_seconds):
                match connection.recv():
                    case "began", pid:
                        pass
                    case "path", path:
                        told.path = path
                    case "errno", number:
                        told.errno = number
                        return Answer(None, [])
                    case "answer", answer:
                        return Answer(*answer)
            if pid:
                told.problem = f"it takes over {self._stuck_seconds:g} s"
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        except (EOFError, ConnectionError):
            told.deaths += pid != 0
            if told.deaths == DEATHS:
                told.problem = "whoever runs it dies"
        told.failures += pid == 0
        if told.failures == _TRIES:
            raise SourceError("no process can be made for this request")
        return None


class _Outcome:
    """What the processes for a request have told, and how often they died or could not be made."""

    def __init__(self) -> None:
        self.path = ""
        self.errno = self.deaths = self.failures = 0
        self.problem = ""
