"""A server that forks `touchfs` commands for tests, without a start of Python for each: see `command.py`.

When the first launcher asks, it imports the command line, and nothing that starts threads: such a process could not be
forked safely. Then it becomes two: a small server, and one that has also imported what many commands need later. A fork
takes on the launcher's arguments, environment, directory, descriptors, limits and umask, as they are in /proc, and runs
as the installed script does. The server tells the launcher how it ended.
"""

from __future__ import annotations

import atexit
import fcntl
import gc
import importlib
import io
import os
import pkgutil
import random
import resource
import select
import shutil
import signal
import socket
import struct
import sys
import threading
import time
import traceback
from contextlib import suppress
from dataclasses import dataclass
from typing import NoReturn

from touch import NAME, touch_as

SMALL, LARGE, SCRIPT, PLACE = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
# What a command imports once it knows that it needs it.
UNLOADED = ("av", "datasets", "fsspec", "lance", "pandas", "PIL", "pyarrow", "soundfile", "torch")
# Of these, what many commands of tests need, and what starts no threads: clients of stores take 0.4 s of processor, and
# the first value of a table 0.5 s.
LATER = (
    *("av", "fsspec.implementations.http", "pandas", "PIL.Image", "pyarrow.compute", "pyarrow.parquet", "s3fs"),
    *("psycopg", "pyarrow.pandas_compat", "soundfile", "touchfs.source.remote.store", "touchfs.tables.arrow.packed"),
    *("touchfs.tables.lance.json_rows", "touchfs.tables.rows.json_rows", "touchfs.tree.table_views"),
)
# What most mounts import once they have a dataset or an iterator: 20 ms of each.
OF_MOUNTS = (
    *("encodings.ascii", "numpy.random", "orjson", "touchfs.containers.tar.reader", "touchfs.containers.tar.samples"),
    *("touchfs.containers.touchnet.megatron", "touchfs.indexing.interleaved.catalog", "touchfs.indexing.visit_samples"),
    *("touchfs.interleaved.forms.document", "touchfs.tree.slices"),
)
NAMESPACES = [f"ns/{kind}" for kind in ("cgroup", "ipc", "mnt", "net", "pid", "user", "uts")]
READ_BY_IMPORTS = (b"PYTHON", b"LD_", b"OMP_", b"SSL_", b"FSSPEC_")
KEPT = ("Uid", "Gid", "Groups", "SigBlk", "SigIgn", "NoNewPrivs", "Seccomp", "Cpus_allowed")


@dataclass(frozen=True, slots=True)
class Launcher:
    """A process that asks for a command."""

    pid: int
    arguments: list[bytes]
    environment: dict[bytes, bytes]
    status: dict[str, str]

    @classmethod
    def read(cls, pid: int, count: int) -> Launcher:
        """Raises an OSError if it has ended, or is not ours to look at."""
        arguments = _file(pid, "cmdline").split(b"\0")[:-1]
        pairs = [entry.partition(b"=") for entry in _file(pid, "environ").split(b"\0") if b"=" in entry]
        lines = [line.partition(":") for line in _file(pid, "status").decode().splitlines()]
        return cls(
            pid,
            arguments[len(arguments) - count :],
            {name: value for name, _, value in pairs},
            {name: value.strip() for name, _, value in lines},
        )

    def situation(self) -> tuple[object, ...]:
        """What a fork of the server's is without changing itself: only a launcher that is the same gets one."""
        return (
            {name: value for name, value in self.status.items() if name in KEPT or name.startswith("Cap")},
            os.getsid(self.pid),
            os.getpriority(os.PRIO_PROCESS, self.pid),
            [os.readlink(f"/proc/{self.pid}/{name}") for name in ("root", *NAMESPACES)],
            [_file(self.pid, name) for name in ("cgroup", "oom_score_adj")],
            {name: value for name, value in self.environment.items() if name.startswith(READ_BY_IMPORTS)},
            next(filter(None, map(self.environment.get, (b"LC_ALL", b"LC_CTYPE", b"LANG"))), b"C.UTF-8"),
        )


def _file(pid: int, name: str) -> bytes:
    with open(f"/proc/{pid}/{name}", "rb") as file:
        return file.read()


def load() -> None:
    """Import what commands need: all that ends quickly, and without threads."""
    from touchfs.cli.main import COMMANDS

    for command in COMMANDS:
        importlib.import_module(f"touchfs.cli.{command.replace('-', '_')}")
    import touchfs_mount

    for module in pkgutil.walk_packages(touchfs_mount.__path__, "touchfs_mount."):
        importlib.import_module(module.name)
    for name in OF_MOUNTS:
        importlib.import_module(name)
    loaded = {name.partition(".")[0] for name in sys.modules}.intersection(UNLOADED)
    assert not loaded, f"a command imports {loaded} before it knows whether it needs it"


def load_later() -> None:
    """Import what many commands need later."""
    for name in LATER:
        importlib.import_module(name)
    assert len(os.listdir("/proc/self/task")) == 1, "a module starts a thread when it is imported"


class Server:
    """Forks a command for each launcher, and tells the launcher how it ended."""

    def __init__(self) -> None:
        own = Launcher.read(os.getpid(), 0)
        self._situation = own.situation()
        # What Python itself adds to the environment: the locale that it takes for "C".
        self._added = {name: value for name, value in os.environb.items() if name not in own.environment}
        self._events = select.poll()
        self._events.register(0, select.POLLIN)  # it ends with the tests
        # By the descriptors of both: the connection to a launcher, and its command.
        self._connections: dict[int, socket.socket] = {}
        self._commands: dict[int, tuple[int, socket.socket]] = {}

    def serve(self) -> tuple[Launcher, dict[int, int]] | None:
        """Returns in each fork: for whom, and with which descriptors. Returns None at the end."""
        for listener in (SMALL, LARGE):
            self._events.register(listener, select.POLLIN)
        if all(number != 0 for number, _ in self._events.poll()):
            load()
            mine, others = (SMALL, LARGE) if os.fork() == 0 else (LARGE, SMALL)
            if mine == LARGE:
                load_later()
            gc.freeze()
            self._events.unregister(others)
            os.close(others)
            self._listener = socket.socket(fileno=mine)
        while True:
            for number, _ in self._events.poll():
                if number == 0:
                    return None
                if number in self._commands:
                    self._end(number)
                elif number in self._connections:
                    self._kill(number)
                elif (forked := self._fork()) is not None:
                    return forked

    def _fork(self) -> tuple[Launcher, dict[int, int]] | None:
        connection, _ = self._listener.accept()
        received: list[int] = []
        try:
            message, received, _, _ = socket.recv_fds(connection, 8192, 253)
            if not message:  # it was killed before it asked
                raise ConnectionResetError
            asking = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
            count, *numbers = struct.unpack(f"{len(message) // 4}I", message)
            launcher = Launcher.read(asking, count)
            alike = launcher.situation() == self._situation
        except (OSError, struct.error):
            alike = False
        if not alike:
            _close(received)
            with connection, suppress(OSError):
                connection.send(b"script")
            return None
        os.environb.clear()
        os.environb.update(self._added | launcher.environment)
        pid = os.fork()
        if pid == 0:
            if NAME in os.environ:
                touch_as(os.environ[NAME])
            return launcher, dict(zip(numbers, received, strict=True))
        _close(received)
        with suppress(OSError):
            connection.send(str(pid).encode())
        command = os.pidfd_open(pid)
        self._connections[connection.fileno()] = connection
        self._commands[command] = pid, connection
        self._events.register(connection, select.POLLIN)
        self._events.register(command, select.POLLIN)
        return None

    def _end(self, command: int) -> None:
        pid, connection = self._commands.pop(command)
        self._events.unregister(command)
        os.close(command)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if self._connections.pop(connection.fileno(), None):
            self._events.unregister(connection)
        with connection, suppress(OSError):
            connection.send(str(status).encode())

    def _kill(self, number: int) -> None:
        """The launcher was killed: so is its command."""
        connection = self._connections.pop(number)
        self._events.unregister(connection)
        for pid, its in self._commands.values():
            if its is connection:
                os.kill(pid, signal.SIGKILL)  # nobody has waited for it, so the number is still its own


def _close(descriptors: list[int]) -> None:
    for number in descriptors:
        os.close(number)


def become(launcher: Launcher, descriptors: dict[int, int]) -> None:
    """Take on all that a process has from the one that starts it."""
    directory = os.open(f"/proc/{launcher.pid}/cwd", os.O_RDONLY | os.O_DIRECTORY)
    os.fchdir(directory)
    limits = {limit: resource.prlimit(launcher.pid, limit) for limit in range(16)}
    _own_descriptors(descriptors)
    os.umask(int(launcher.status["Umask"], 8))
    for limit, values in limits.items():
        resource.setrlimit(limit, values)
    sys.argv[:] = [SCRIPT, *map(os.fsdecode, launcher.arguments[1:])]
    sys.argv[0] = os.path.join(os.path.dirname(SCRIPT), os.path.basename(os.fsdecode(launcher.arguments[0])))
    sys.orig_argv[:] = [sys.executable, *sys.argv]
    sys.modules["__main__"].__file__ = SCRIPT
    time.tzset()
    random.seed()


def _own_descriptors(descriptors: dict[int, int]) -> None:
    """Have the launcher's descriptors, with its numbers, and no others. The standard streams are made of them."""
    above = max(descriptors, default=0) + 1
    moved = {number: _at_least(above, received) for number, received in descriptors.items()}
    os.closerange(0, above)
    for number, copy in moved.items():
        os.dup2(copy, number)
    os.closerange(above, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    sys.stdin = sys.__stdin__ = _stream(0, "r", sys.__stdin__)
    sys.stdout = sys.__stdout__ = _stream(1, "w", sys.__stdout__)
    sys.stderr = sys.__stderr__ = _stream(2, "w", sys.__stderr__)


def _at_least(number: int, descriptor: int) -> int:
    return fcntl.fcntl(descriptor, fcntl.F_DUPFD, number)


def _stream(number: int, mode: str, before: io.TextIOWrapper) -> io.TextIOWrapper | None:
    """A standard stream as Python makes it at its start."""
    try:
        os.fstat(number)
    except OSError:
        return None
    unbuffered = mode == "w" and before.write_through
    file = os.fdopen(number, mode + "b", buffering=0 if unbuffered else -1, closefd=False)
    lines = number == 2 or file.isatty()
    return io.TextIOWrapper(
        file, before.encoding, before.errors, newline="\n", line_buffering=lines, write_through=unbuffered
    )


def run() -> int:
    """Run the command line, and return its exit status, as the script does."""
    from touchfs.cli.main import main

    try:
        main()
    except SystemExit as end:
        return end.code
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def end(status: int) -> NoReturn:
    """End as Python does, but free no objects: to take them from the pages shared with the server costs 60 ms."""
    threading._shutdown()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(status)


if __name__ == "__main__":
    os.symlink(SCRIPT, f"{PLACE}/script")
    sys.path[0] = os.path.dirname(SCRIPT)
    command = Server().serve()
    if command is None:
        shutil.rmtree(PLACE, ignore_errors=True)  # as the other server does
    else:
        become(*command)
        end(run())
