"""A server that forks `touchfs` commands, and Python, for tests, without a start of Python for each: see `command.py`.

When the first launcher asks, it imports the command line, and nothing that starts threads: such a process could not be
forked safely. Then it becomes three: a small server, one that has also imported what many commands need later, and one
that imports what programs of our users need, once the first asks. A fork takes on the launcher's arguments,
environment, directory, descriptors, limits and umask, as they are in /proc, and runs the script as Python does. The
server tells the launcher how it ended.
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
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import NoReturn

from touch import NAME, touch_as

SMALL, LARGE, PROGRAMS = map(int, sys.argv[1:4])
SCRIPT, PLACE = sys.argv[4:]
# What a command imports once it knows that it needs it.
UNLOADED = ("av", "datasets", "fsspec", "lance", "pandas", "PIL", "pyarrow", "soundfile", "torch")
# Of these, what many commands of tests need, and what starts no threads: clients of stores take 0.4 s of processor.
LATER = (
    *("av", "fsspec.implementations.http", "PIL.Image", "pyarrow.compute", "pyarrow.parquet", "s3fs"),
    *("psycopg", "soundfile", "touchfs.source.remote.store", "touchfs.tables.arrow.packed"),
    *("touchfs.tables.lance.json_rows", "touchfs.tables.rows.json_rows", "touchfs.tree.table_views"),
)
# What most mounts import once they have a dataset or an iterator: 20 ms of each.
OF_MOUNTS = (
    *("encodings.ascii", "numpy.random", "orjson", "touchfs.containers.tar.reader", "touchfs.containers.tar.samples"),
    *("touchfs.containers.touchnet.megatron", "touchfs.indexing.interleaved.catalog", "touchfs.indexing.visit_samples"),
    *("touchfs.interleaved.forms.document", "touchfs.tree.slices"),
)
# What programs need later, as in pages of the docs: torch takes 1.7 s. No Lance, which warns at each fork.
PEERS = (
    *("pyarrow.dataset", "torchdata.stateful_dataloader"),
    *("touchfs.backend", "touchfs.cache", "touchfs.interleaved", "touchfs.node"),
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

    def is_script(self) -> bool:
        """Whether Python has a script, and no options: all else it does itself."""
        match self.arguments[1:]:
            case [b"-c", _, *_]:
                return True
            case [script, *_]:
                return os.path.isfile(os.path.join(b"/proc/%d/cwd" % self.pid, script))
        return False

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


def load_later(modules: tuple[str, ...]) -> None:
    for name in modules:
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
        for listener in (SMALL, LARGE, PROGRAMS):
            self._events.register(listener, select.POLLIN)
        if all(number != 0 for number, _ in self._events.poll()):
            self._become_three()
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

    def _become_three(self) -> None:
        load()
        mine = SMALL
        if os.fork():
            load_later(LATER)
            mine = LARGE if os.fork() else PROGRAMS
        for other in {SMALL, LARGE, PROGRAMS} - {mine}:
            self._events.unregister(other)
            os.close(other)
        if mine == PROGRAMS and all(number != 0 for number, _ in self._events.poll()):
            load_later(PEERS)
        gc.freeze()
        self._listener = socket.socket(fileno=mine)
        self.is_python = mine == PROGRAMS

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
            alike = launcher.situation() == self._situation and (launcher.is_script() or not self.is_python)
        except (OSError, struct.error):
            alike = False
        if not alike:
            _close(received)
            with connection, suppress(OSError):
                connection.send(b"installed")
            return None
        os.environb.clear()
        os.environb.update(self._added | launcher.environment)
        pid = os.fork()
        if pid == 0:
            if NAME in os.environ:
                touch_as(os.environ[NAME])
            if not self.is_python:
                called = os.path.join(os.path.dirname(SCRIPT), os.path.basename(os.fsdecode(launcher.arguments[0])))
                launcher.arguments[:1] = map(os.fsencode, [sys.executable, called])
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
    sys.orig_argv[:] = map(os.fsdecode, launcher.arguments)
    sys.argv[:] = sys.orig_argv[1:]
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


def run(script: str) -> int:
    """Run a script, or `-c`, as Python does, and return its exit status."""
    main = sys.modules["__main__"] = ModuleType("__main__")
    try:
        if script == "-c":
            sys.path[0], name, code = "", "<string>", sys.argv.pop(1)
        else:
            name = main.__file__ = os.path.abspath(script)
            sys.path[0] = os.path.dirname(os.path.realpath(name))
            code = Path(name).read_bytes()
        exec(compile(code, name, "exec", dont_inherit=True), vars(main))
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    except BaseException as error:
        below = error.__traceback__.tb_next
        sys.excepthook(type(error), error.with_traceback(below), below)
        return -signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1
    return 0


def end(status: int) -> NoReturn:
    """End as Python does, but free no objects: to take them from the pages shared with the server costs 60 ms."""
    threading._shutdown()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()
    if status < 0:
        signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


if __name__ == "__main__":
    os.symlink(SCRIPT, f"{PLACE}/touchfs.installed")
    os.symlink(sys.executable, f"{PLACE}/python.installed")
    sys.path[0] = os.path.dirname(SCRIPT)
    server = Server()
    command = server.serve()
    if command is None:
        shutil.rmtree(PLACE, ignore_errors=True)  # as the other server does
    else:
        become(*command)
        end(run(sys.argv[0] if server.is_python else SCRIPT))
