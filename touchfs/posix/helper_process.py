"""Helper processes: programs of ours that answer calls, one after the other.

They do what would take processor time from the threads of this process, or may crash it. A helper is a new program, not
a fork: it has no locks or descriptors of ours. It ends with the thread that started it. Calls and answers are pickled,
so both sides trust each other. Other processes that work for one of ours are of other kinds:

- A decoder (`touchfs.media.decoder`) may be taken over by a hostile file. So it has limits on its memory and time, its
  messages are JSON, and any thread may call it: it ends with its connection.
- A program beside a mount gets its work once, from a process that never waits for it.
- A worker of a mount, also one that runs a request alone, is a fork, because it has the kernel's descriptor.
"""

from __future__ import annotations

import os
import pickle
import signal
import socket
import subprocess
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from touchfs.core.errors import TouchfsError
from touchfs.posix import interpreter

# From the end of a process's connection, or from its signal, to the end of the process.
_END_SECONDS = 1.0


class HelperEndedError(Exception):
    """The helper has ended. The text is how: " by signal 9", or nothing."""


class HelperProcess:
    """The function `main` of a module in a process of its own, where it calls `answer_calls`.

    `begin` are the arguments of its `serve`; the signal `end` is as for `interpreter.program`. Raises OSError if the
    system starts no process.
    """

    def __init__(self, module: str, *begin: Any, end: signal.Signals = signal.SIGTERM) -> None:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            command = interpreter.program(module, end)
            self._process = subprocess.Popen(command, stdin=theirs.fileno(), stdout=subprocess.DEVNULL)
            self._stream = ours.makefile("rwb")  # keeps the connection open
        self._unsent = pickle.dumps(begin)

    def call(self, *arguments: Any) -> Any:
        """Return the answer to a call. Raises the TouchfsError that answers it, and HelperEndedError."""
        try:
            self._stream.write(self._unsent + pickle.dumps(arguments))
            self._stream.flush()
            self._unsent = b""
            answer = pickle.load(self._stream)
        except (OSError, EOFError, ValueError, pickle.UnpicklingError) as error:  # ValueError: it was closed
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_END_SECONDS)
            status = self._process.returncode or 0
            self.close()
            raise HelperEndedError(f" by signal {-status}" if status < 0 else "") from error
        except BaseException:  # Ctrl-C, for one: nobody knows whose answer would come next
            self.close()
            raise
        if isinstance(answer, TouchfsError):
            raise answer
        return answer

    def close(self) -> None:
        """End it. One that hangs in a file system ends later, and is not waited for."""
        self._process.kill()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_SECONDS)
        with suppress(OSError):  # of a call that could not be sent
            self._stream.close()


def answer_calls(serve: Callable[..., Callable[..., Any]]) -> None:
    """In a helper: answer calls by the function that `serve` returns, until the other process has no more of them."""
    with socket.socket(fileno=os.dup(0)) as connection, connection.makefile("rwb") as stream:
        answer = serve(*pickle.load(stream))
        while True:
            try:
                arguments = pickle.load(stream)
            except EOFError:
                return
            try:
                result = answer(*arguments)
            except TouchfsError as error:
                result = error
            stream.write(pickle.dumps(result))
            stream.flush()
