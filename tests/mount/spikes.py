"""Mounts of the synthetic file system of `spike_daemon`."""

import os
import subprocess
import sys
from pathlib import Path

from processes import children

HERE = Path(__file__).parent


def workers_of(supervisor: int) -> list[int]:
    return [worker for zygote in children(supervisor) for worker in children(zygote)]


class SpikeMount:
    """A running spike; leaves neither mount nor process behind."""

    def __init__(self, tmp_path: Path, workers: int, loop: str, *more: str) -> None:
        self.path = tmp_path / "mnt"
        command = [sys.executable, HERE / "spike_daemon.py", self.path, tmp_path, str(workers), loop, *more]
        self.log = tmp_path / "log"
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"

    def __enter__(self) -> "SpikeMount":
        return self

    def __exit__(self, *exception: object) -> None:
        if self.process.poll() is None:
            self.process.terminate()
        self.process.communicate(timeout=60)
        assert not os.path.ismount(self.path)
