"""Mounts of the synthetic file system of `spike_daemon`."""

import os
import subprocess
import sys
from pathlib import Path

from mounts import name_of
from processes import children
from waiting import wait_until

HERE = Path(__file__).parent


def serving_of(supervisor: int) -> list[int]:
    """All processes that answer requests."""
    return [process for zygote in children(supervisor) for process in children(zygote)]


class SpikeMount:
    """A running spike; leaves neither mount nor process behind."""

    def __init__(self, tmp_path: Path, workers: int, *more: str) -> None:
        self.path = tmp_path / "mnt"
        command = [sys.executable, HERE / "spike_daemon.py", self.path, tmp_path, str(workers), *more]
        self.log = tmp_path / "log"
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"
        wait_until(lambda: len(self.workers()) == workers)

    def workers(self) -> list[int]:
        """Those that answer requests for data."""
        return [process for process in serving_of(self.process.pid) if not name_of(process).startswith("touchfs-")]

    def __enter__(self) -> "SpikeMount":
        return self

    def __exit__(self, *exception: object) -> None:
        if self.process.poll() is None:
            self.process.terminate()
        self.process.communicate(timeout=60)
        assert not os.path.ismount(self.path)
