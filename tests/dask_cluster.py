"""A real Dask scheduler and its workers, each a process of one thread, on loopback.

They are forks of a server that has imported Dask, which takes a second of processor: see `own_forkserver.py`.
"""

import ctypes
import importlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path

from click.testing import CliRunner, Result
from distributed import Client
from own_mounts import FORGET_OTHERS
from waiting import wait_until

from touchfs.cli.main import group

# What the server of these processes imports. It does not find modules of tests, which import pytest.
PRELOADED = (
    *("distributed.cli.dask_scheduler", "distributed.cli.dask_worker", "pytest", "touchfs.cli.main"),
    *("pyarrow.compute", "touchfs.bulk.convert.job", "touchfs.indexing", "touchfs.verify.job"),
)
# As on another machine: processes do not see ours, nor what these have open.
ELSEWHERE = "mount -t proc none /proc"
# For functions of tests, which Dask sends by their names.
MODULES = {"PYTHONPATH": os.pathsep.join(sys.path)}
_NEW_MOUNTS, _NEW_PIDS = 0x20000, 0x20000000


@dataclass
class Cluster:
    """Its processes are in sessions of their own. What they write is in `log`. The first one is the scheduler."""

    place: Path
    log: Path
    context: ForkServerContext
    environment: dict[str, str] = field(default_factory=dict)
    processes: list[ForkServerProcess] = field(default_factory=list)
    tls: tuple[object, ...] = ()
    # Commands of a shell that make the machine of a worker.
    machine: str = ""
    # How many workers were started, with those that are no more.
    started: int = 0

    @property
    def address(self) -> str:
        address: str = json.loads((self.place / "scheduler.json").read_text())["address"]
        return address

    def start(self, *command: object, machine: str = "") -> ForkServerProcess:
        words = [str(word) for word in command]
        process = self.context.Process(
            target=_become, args=(words, self.place, self.log, os.environ | self.environment, machine)
        )
        process.start()
        self.processes.append(process)
        return process

    def start_worker(self) -> ForkServerProcess:
        return self._start_worker("--no-nanny", machine=self.machine)

    def start_nanny(self) -> ForkServerProcess:
        """A process that starts a worker, and another one in its place if it dies."""
        return self._start_worker()

    def _start_worker(self, *options: object, machine: str = "") -> ForkServerProcess:
        self.started += 1
        options += ("--nthreads", 1, "--no-dashboard", "--host", "127.0.0.1", "--local-directory", self.place)
        options += ("--death-timeout", 60)  # a scheduler that has gone before it has joined is not waited for
        return self.start("worker", self.address, *options, *self.tls, machine=machine)

    def wait(self) -> None:
        """Until all workers that were started have joined."""
        try:
            wait_until(lambda: self.log.read_text().count("Registered to:") >= self.started)
        except AssertionError as error:
            raise AssertionError(self.log.read_text()) from error

    def have(self, workers: int) -> None:
        """Start or kill workers until there are so many. Those that have ended do not count."""
        alive = [process for process in self.processes if process.is_alive()]
        if len(alive) == len(self.processes) == workers + 1:
            return
        self.processes = alive
        for process in self.processes[workers + 1 :]:
            self.kill(process)
        for _ in range(workers + 1 - len(self.processes)):
            self.start_worker()
        self.wait()
        with Client(self.address, set_as_default=False) as client:
            wait_until(lambda: len(client.nthreads()) == workers)

    def kill(self, process: ForkServerProcess) -> None:
        """With the nanny, which would start another worker."""
        with suppress(ProcessLookupError):  # all of them have ended
            os.killpg(process.pid or 0, signal.SIGKILL)
        process.join()
        self.processes.remove(process)


def _become(words: Sequence[str], place: Path, log: Path, environment: dict[str, str], machine: str) -> None:
    """Be a command of Dask, in a session of its own."""
    os.setsid()
    written = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    for stream in (1, 2):
        os.dup2(written, stream)
    os.close(written)
    os.chdir(place)
    os.environ.clear()
    os.environ.update(environment)
    if machine:
        _become_another_machine(machine)
    kind, *options = words
    importlib.import_module(f"distributed.cli.dask_{kind}").main.main(options, prog_name="dask")


def _become_another_machine(commands: str) -> None:
    """Go on in a process with mounts and process numbers of its own. This one waits for it."""
    if ctypes.CDLL(None, use_errno=True).unshare(_NEW_MOUNTS | _NEW_PIDS):
        raise OSError(ctypes.get_errno(), "unshare")
    if inner := os.fork():
        os._exit(os.waitstatus_to_exitcode(os.waitpid(inner, 0)[1]) & 0xFF)
    subprocess.run(["sh", "-ec", f"mount --make-rprivate /\n{FORGET_OTHERS}\n{commands}"], check=True)


def _is_written(file: Path) -> bool:
    """Dask writes it in place, so it may be empty or a part at first."""
    try:
        return bool(json.loads(file.read_text()))
    except (FileNotFoundError, json.JSONDecodeError):
        return False


@contextmanager
def cluster(
    place: Path,
    context: ForkServerContext,
    workers: int = 2,
    tls: tuple[object, ...] = (),
    dashboard: bool = False,
    machine: str = "",
    **environment: str,
) -> Iterator[Cluster]:
    place.mkdir(parents=True, exist_ok=True)
    made = Cluster(place, place / "log", context, environment, tls=tls, machine=machine)
    try:
        made.start(
            "scheduler", "--host", "127.0.0.1", "--port", 0,
            *(("--dashboard-address", "127.0.0.1:0") if dashboard else ("--no-dashboard",)),
            "--scheduler-file", place / "scheduler.json", *tls,
        )  # fmt: skip
        try:
            wait_until(lambda: _is_written(place / "scheduler.json"))
        except AssertionError as error:
            raise AssertionError(made.log.read_text()) from error
        for _ in range(workers):
            made.start_worker()
        made.wait()
        yield made
    finally:
        for process in list(made.processes):
            made.kill(process)


def invoke(*arguments: object, **options: object) -> Result:
    """A command in this process, which has imported Dask: another process takes a second to do so."""
    before = dict(os.environ)
    try:
        words = [str(word) for word in arguments]
        return CliRunner().invoke(group, words, standalone_mode=False, **options)  # type: ignore[arg-type]
    finally:
        os.environ.clear()
        os.environ.update(before)
