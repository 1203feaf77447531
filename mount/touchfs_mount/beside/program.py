"""A program that works beside a mount, such as one that decompresses shards, or fetches them.

It is a child of the zygote and ends with it. It is a new program, not a fork: it must not inherit the FUSE descriptor,
because the mount ends only when no process has that open. Readers come first: it is nicer than the workers, unless a
reader waits for it.
"""

from __future__ import annotations

import io
import os
import pickle
import subprocess
import sys
from typing import Any

from touchfs.posix import interpreter
from touchfs_mount.logs import logs
from touchfs_mount.logs.logs import LogOptions
from touchfs_mount.numbers.log_level import LogLevel

_NICENESS = 10

# The programs that this process has started, and that have not ended as far as it knows.
_started: list[subprocess.Popen[bytes]] = []


class Program:
    """The running program: the function `main` of a module, which begins with `take_work`. Raises OSError.

    Its work is in a file in memory, which it truncates at the end (`finish`): after that it may still be about to exit.
    """

    def __init__(self, module: str, work: object, log: LogOptions, *, is_awaited: bool = False) -> None:
        self._work = io.FileIO(os.memfd_create("touchfs-beside"), "r+")
        self._work.write(pickle.dumps((0 if is_awaited else _NICENESS, log, work)))
        self._work.seek(0)
        self._popen = subprocess.Popen(interpreter.program(module), stdin=self._work, stdout=subprocess.DEVNULL)
        _started.append(self._popen)

    @property
    def has_finished(self) -> bool:
        return os.fstat(self._work.fileno()).st_size == 0

    @property
    def is_running(self) -> bool:
        return self._popen.poll() is None and not self.has_finished

    def kill(self) -> None:
        """End it, whatever it is doing. It may take a while to go, if a disk does not answer it (`reap_programs`)."""
        self._popen.kill()


def reap_programs() -> None:
    """In the zygote, from time to time: let programs that have ended disappear from the list of processes."""
    _started[:] = [popen for popen in _started if popen.poll() is None]


def take_work() -> Any:
    """In the program: its work. It ignores the signals for the supervisor, as the zygote does."""
    niceness, log, work = pickle.load(sys.stdin.buffer)
    os.nice(niceness)
    logs.configure(log, LogLevel(log.level))
    return work


def finish() -> None:
    """In the program: its work is done."""
    os.ftruncate(sys.stdin.fileno(), 0)
