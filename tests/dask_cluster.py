"""A real Dask scheduler with two workers, each a process of one thread, on loopback."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

DASK = Path(sys.executable).with_name("dask")


@dataclass
class Cluster:
    """Its processes are in sessions of their own. What they write is in `log`."""

    place: Path
    log: Path
    environment: dict[str, str] = field(default_factory=dict)
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    tls: tuple[object, ...] = ()

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

    def start_worker(self, *before: object) -> subprocess.Popen[bytes]:
        options = ("--nthreads", 1, "--no-dashboard", "--host", "127.0.0.1", "--local-directory", self.place)
        return self.start(*before, DASK, "worker", self.address, *options, *self.tls)

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        """With the nanny, which would start another worker."""
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
    place: Path, workers: int = 2, tls: tuple[object, ...] = (), dashboard: bool = False, **environment: str
) -> Iterator[Cluster]:
    place.mkdir(parents=True, exist_ok=True)
    made = Cluster(place, place / "log", environment, tls=tls)
    try:
        made.start(
            DASK, "scheduler", "--host", "127.0.0.1", "--port", 0,
            *(("--dashboard-address", "127.0.0.1:0") if dashboard else ("--no-dashboard",)),
            "--scheduler-file", place / "scheduler.json", *tls,
        )  # fmt: skip
        deadline = time.monotonic() + 60
        while not _is_written(place / "scheduler.json"):
            assert time.monotonic() < deadline, made.log.read_text()
            time.sleep(0.05)
        for _ in range(workers):
            made.start_worker()
        while made.log.read_text().count("Registered to:") < workers:
            assert time.monotonic() < deadline, made.log.read_text()
            time.sleep(0.05)
        yield made
    finally:
        for process in list(made.processes):
            made.kill(process)
