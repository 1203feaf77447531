"""A real Dask scheduler and its workers, each a process of one thread, on loopback."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from click.testing import CliRunner, Result
from distributed import Client
from waiting import wait_until

from touchfs.cli.main import group

DASK = Path(sys.executable).with_name("dask")
# What begins a command of another machine: it sees none of our processes, nor what they have open.
ELSEWHERE = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
# For functions of tests, which Dask sends by their names.
MODULES = {"PYTHONPATH": os.pathsep.join(sys.path)}


@dataclass
class Cluster:
    """Its processes are in sessions of their own. What they write is in `log`. The first one is the scheduler."""

    place: Path
    log: Path
    environment: dict[str, str] = field(default_factory=dict)
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    tls: tuple[object, ...] = ()
    # What begins the command of a worker.
    before: tuple[object, ...] = ()
    # How many workers were started, with those that are no more.
    started: int = 0

    @property
    def address(self) -> str:
        address: str = json.loads((self.place / "scheduler.json").read_text())["address"]
        return address

    def start(self, *command: object) -> subprocess.Popen[bytes]:
        with open(self.log, "ab") as log:
            process = subprocess.Popen(
                [str(word) for word in command],
                stdout=log,
                stderr=log,
                cwd=self.place,
                env=os.environ | self.environment,
                start_new_session=True,
            )
        self.processes.append(process)
        return process

    def start_worker(self) -> subprocess.Popen[bytes]:
        return self._start_worker(*self.before, options=("--no-nanny",))

    def start_nanny(self) -> subprocess.Popen[bytes]:
        """A process that starts a worker, and another one in its place if it dies."""
        return self._start_worker()

    def _start_worker(self, *before: object, options: tuple[object, ...] = ()) -> subprocess.Popen[bytes]:
        self.started += 1
        options += ("--nthreads", 1, "--no-dashboard", "--host", "127.0.0.1", "--local-directory", self.place)
        options += ("--death-timeout", 60)  # a scheduler that has gone before it has joined is not waited for
        return self.start(*before, DASK, "worker", self.address, *options, *self.tls)

    def wait(self) -> None:
        """Until all workers that were started have joined."""
        try:
            wait_until(lambda: self.log.read_text().count("Registered to:") >= self.started)
        except AssertionError as error:
            raise AssertionError(self.log.read_text()) from error

    def have(self, workers: int) -> None:
        """Start or kill workers until there are so many. Those that have ended do not count."""
        alive = [process for process in self.processes if process.poll() is None]
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

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        """With the nanny, which would start another worker."""
        with suppress(ProcessLookupError):  # all of them have ended
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        self.processes.remove(process)


def _is_written(file: Path) -> bool:
    """Dask writes it in place, so it may be empty or a part at first."""
    try:
        return bool(json.loads(file.read_text()))
    except (FileNotFoundError, json.JSONDecodeError):
        return False


@contextmanager
def cluster(
    place: Path,
    workers: int = 2,
    tls: tuple[object, ...] = (),
    dashboard: bool = False,
    before: tuple[object, ...] = (),
    **environment: str,
) -> Iterator[Cluster]:
    place.mkdir(parents=True, exist_ok=True)
    made = Cluster(place, place / "log", environment, tls=tls, before=before)
    try:
        made.start(
            DASK, "scheduler", "--host", "127.0.0.1", "--port", 0,
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
